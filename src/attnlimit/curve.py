"""Curve: a statistic of attention against the number of tokens, predicted or measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlimit.checks import Array

NORMS = ("mean_norm", "covariance_norm", "covariance_operator_norm", "uniform")
"""Statistics that are errors; every other one is a mean squared error."""


@dataclass(frozen=True, eq=False)
class Curve:
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
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Array:
        """The error in the units of the output: the square root of a mean squared error."""
        return self.value if self.statistic in NORMS else np.sqrt(self.value)

    @property
    def root_stderr(self) -> Array:
        """Standard error of `root`, by the delta method."""
        if self.statistic in NORMS:
            return self.stderr
        return np.divide(
            self.stderr, 2 * self.root, out=np.zeros_like(self.stderr), where=self.root > 0
        )

    @property
    def local_rate(self) -> Array:
        """-d log(root error) / d log n at each n: what a log-log fit around n measures."""
        if self.rate is not None:
            return self.rate
        if len(self.n) < 2 or not (self.value > 0).all():
            return np.full(len(self.n), np.nan)
        return -np.gradient(np.log(self.root), np.log(self.n.astype(np.float64)))

    def to_frame(self) -> pd.DataFrame:
        """One row for each n: statistic, value, stderr, root, local_rate, method."""
        return pd.DataFrame(
            {
                "statistic": self.statistic,
                "n": self.n,
                "value": self.value,
                "stderr": self.stderr,
                "root": self.root,
                "root_stderr": self.root_stderr,
                "local_rate": self.local_rate,
                "method": self.method,
            }
        )

    def __str__(self) -> str:
        frame = self.to_frame()[["n", "value", "stderr", "root", "local_rate"]]
        if self.numerical_error is not None:
            frame = frame.rename(columns={"stderr": "numerical_error"})
            frame["numerical_error"] = self.numerical_error
        lines = [f"{self.statistic} against n ({self.method})"]
        lines.append(frame.to_string(index=False, float_format=lambda v: f"{v:.4g}"))
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)
