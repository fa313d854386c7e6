"""Curve: a statistic of attention against the number of tokens, predicted or measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from attnlimit import checks, intervals
from attnlimit.checks import Array
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table

NORMS = ("mean_norm", "covariance_norm", "uniform")
"""Statistics that are errors; every other one is a mean squared error."""


def local_rate(n: NDArray[np.int64], root: Array) -> Array:
    """-d log(root error) / d log n along the last axis: what a log-log fit around n measures.

    NaN for a single n, or where an error is not positive.
    """
    if len(n) < 2 or not (root > 0).all():
        return np.full(root.shape, np.nan)
    return np.asarray(-np.gradient(np.log(root), np.log(n.astype(np.float64)), axis=-1))


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Origin and reliability of a curve; None where a field does not apply."""

    origin: str | None = None  # the head and its tokens, in words
    layer: int | None = None  # of a captured head, as are the next two
    head: int | None = None
    tokens: int | None = None
    horizon: float | None = None
    reliable: NDArray[np.bool_] | None = None  # where a first-order expansion holds, at each n
    variance_reduction: Array | None = None  # by control variates, at each n
    largest_share: Array | None = None  # of the variance, that one draw carries, at each n
    skewness: Array | None = None  # of single draws, at each n
    kurtosis: Array | None = None  # their excess over a normal law's
    bias: Array | None = None  # E Gamma_n - Gamma, (len(n), d_v) or (len(n), queries, d_v)
    bias_stderr: Array | None = None


@dataclass(frozen=True, eq=False)
class Curve(Result, Pictured):
    """A statistic against n, with its errors and its origin.

    `value` is a mean squared error, except for the statistics in `NORMS`. `stderr` is zero for a
    prediction, which has a `numerical_error` instead; `covariance` is the joint covariance of
    measured values, which share draws across n.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> curve = al.Curve("mean", [100, 400], [0.04, 0.01], [0.0, 0.0], "by hand")
    >>> curve.root
    array([0.2, 0.1])
    """

    statistic: str
    n: NDArray[np.int64]
    value: Array
    stderr: Array
    method: str
    covariance: Array | None = None
    numerical_error: Array | None = None
    replicates: int | None = None
    rate: Array | None = None
    notes: tuple[str, ...] = ()
    diagnostics: Diagnostics = Diagnostics()

    @property
    def root(self) -> Array:
        """The error in the units of the output: the square root of a mean squared error."""
        return self.value if self.statistic in NORMS else np.sqrt(self.value)

    @property
    def root_stderr(self) -> Array:
        """Standard error of `root`, by the delta method."""
        return self._of_root(self.stderr)

    @property
    def root_numerical_error(self) -> Array:
        """Numerical error of `root`; zero where none is stated."""
        stated = self.numerical_error
        return np.zeros_like(self.value) if stated is None else self._of_root(stated)

    def _of_root(self, error: Array) -> Array:
        if self.statistic in NORMS:
            return error
        return np.divide(error, 2 * self.root, out=np.zeros_like(error), where=self.root > 0)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Ends, at each n, of a confidence interval of the true value.

        Draws of squared errors are skewed: a sample that has missed the rare large ones is too low
        and underestimates its own variance. Hall's cubic of the studentized mean corrects that to
        order 1/replicates, so that the upper end is farther from the value than the lower; where
        tails are long Student's quantiles have fewer degrees of freedom. A prediction's interval is
        that of a normal variable with its `numerical_error` as standard deviation.
        """
        if self.replicates is None:
            tail = (1 - checks.probability(level, "level")) / 2
            error = 0.0 if self.numerical_error is None else self.numerical_error
            reach = float(ndtri(1 - tail)) * np.hypot(self.stderr, error)
            return self.value - reach, self.value + reach
        return intervals.interval(self.value, self.stderr, self.skewness, self.freedom, level)

    @property
    def freedom(self) -> Array:
        """Degrees of freedom of the standard errors; infinite for theory."""
        if self.replicates is None:
            return np.full(self.value.shape, np.inf)
        kurtosis = self.diagnostics.kurtosis
        kurtosis = np.zeros_like(self.value) if kurtosis is None else kurtosis
        return intervals.degrees_of_freedom(kurtosis, self.replicates)

    @property
    def skewness(self) -> Array:
        """Skewness of the measured values, that of their draws over the root of their number."""
        skewness = self.diagnostics.skewness
        if skewness is None or self.replicates is None:
            return np.zeros_like(self.value)
        return np.asarray(skewness / np.sqrt(self.replicates))

    @property
    def local_rate(self) -> Array:
        """-d log(root error) / d log n at each n: that of the law, or of the points."""
        return local_rate(self.n, self.root) if self.rate is None else self.rate

    def to_frame(self) -> pd.DataFrame:
        """One row for each n; `numerical_error` is NaN where none is stated."""
        return table(
            statistic=self.statistic,
            n=self.n,
            value=self.value,
            stderr=self.stderr,
            numerical_error=np.nan if self.numerical_error is None else self.numerical_error,
            root=self.root,
            root_stderr=self.root_stderr,
            local_rate=self.local_rate,
            method=self.method,
        )

    def panel(self) -> Panel:
        """The root error against n: a line with its numerical error, or points with error bars."""
        n, root, group = self.n, self.root, self.statistic
        if np.any(self.stderr > 0):
            label = f"measured ({self.method})"
            series = [Series(n, root, "points", label, group, self.root_stderr)]
        else:
            series = [Series(n, root, "line", f"predicted ({self.method})", group)]
            if self.numerical_error is not None:
                low, high = (root + sign * self.root_numerical_error for sign in (-1, 1))
                series.append(Series(n, root, "band", None, group, None, low, high))
        title = f"{group.replace('_', ' ')}: error against n"
        return Panel(title, "number of tokens n", "root mean squared error", series)

    def __str__(self) -> str:
        error = "stderr" if self.numerical_error is None else "numerical_error"
        frame = self.to_frame()[["n", "value", error, "root", "local_rate"]]
        lines = [f"{self.statistic} against n ({self.method})"]
        lines.append(frame.to_string(index=False, float_format=lambda v: f"{v:.4g}"))
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)
