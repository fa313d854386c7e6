"""Curve: a statistic of attention against the number of tokens, predicted or measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from attnlimit import checks, skewed
from attnlimit.checks import Array
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table

NORMS = ("mean_norm", "covariance_norm", "covariance_operator_norm", "uniform")
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
    """Where a curve comes from and how far to trust it; None where that does not apply."""

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
    """A statistic against n, with its error bars and where it came from.

    `value` is a mean squared error, except for the statistics in `NORMS`. `stderr` is zero for
    theory, whose own `numerical_error` stands beside it; `covariance` is the joint covariance of
    measured values, which share draws across n.
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
        if self.statistic in NORMS:
            return self.stderr
        nothing = np.zeros_like(self.stderr)
        return np.divide(self.stderr, 2 * self.root, out=nothing, where=self.root > 0)

    @property
    def root_numerical_error(self) -> Array:
        """Theory's own error of `root`; zero where none is stated."""
        if self.numerical_error is None:
            return np.zeros_like(self.value)
        if self.statistic in NORMS:
            return self.numerical_error
        nothing = np.zeros_like(self.value)
        return np.divide(self.numerical_error, 2 * self.root, out=nothing, where=self.root > 0)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Ends, at each n, of an interval that holds the true value with this probability.

        Draws of squared errors are skewed: a sample that has missed the rare large ones is too low
        and thinks itself precise. Hall's cubic of the studentised mean puts that right to order
        1/replicates, so that the upper end is farther from the value than the lower; where tails
        are long Student's quantiles have fewer degrees of freedom. Theory's interval is its
        `numerical_error`, taken as a deviation.
        """
        if self.replicates is None:
            tail = (1 - checks.probability(level, "level")) / 2
            error = 0.0 if self.numerical_error is None else self.numerical_error
            reach = float(ndtri(1 - tail)) * np.hypot(self.stderr, error)
            return self.value - reach, self.value + reach
        return skewed.interval(self.value, self.stderr, self.skewness, self.freedom, level)

    @property
    def freedom(self) -> Array:
        """Degrees of freedom of the standard errors; infinite for theory."""
        if self.replicates is None:
            return np.full(self.value.shape, np.inf)
        found = self.diagnostics.kurtosis
        tails = np.zeros_like(self.value) if found is None else found
        return skewed.freedom(tails, self.replicates)

    @property
    def skewness(self) -> Array:
        """Skewness of the measured values, that of their draws over the root of their number."""
        found = self.diagnostics.skewness
        if found is None or self.replicates is None:
            return np.zeros_like(self.value)
        return np.asarray(found / np.sqrt(self.replicates))

    @property
    def local_rate(self) -> Array:
        """-d log(root error) / d log n at each n: theory's own, or that of the points."""
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
        """The root error against n: a line with theory's own error, or points with their bars."""
        measured = bool(np.any(self.stderr > 0))
        label = f"{'measured' if measured else 'predicted'} ({self.method})"
        name = f"{self.statistic.replace('_', ' ')}: error against n"
        if measured:
            points = Series(self.n, self.root, "points", label, self.statistic, self.root_stderr)
            return Panel(name, "number of tokens n", "root mean squared error", [points])
        series = [Series(self.n, self.root, "line", label, self.statistic)]
        if self.numerical_error is not None:
            low, high = (self.root + sign * self.root_numerical_error for sign in (-1, 1))
            series.append(Series(self.n, self.root, "band", None, self.statistic, None, low, high))
        return Panel(name, "number of tokens n", "root mean squared error", series)

    def __str__(self) -> str:
        error = "stderr" if self.numerical_error is None else "numerical_error"
        frame = self.to_frame()[["n", "value", error, "root", "local_rate"]]
        lines = [f"{self.statistic} against n ({self.method})"]
        lines.append(frame.to_string(index=False, float_format=lambda v: f"{v:.4g}"))
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)
