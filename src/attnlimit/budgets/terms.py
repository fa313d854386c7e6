"""What is promised? An error of at most epsilon, relative, with probability 1 - delta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, norm

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput

QUANTILE = 0.99


@dataclass(frozen=True)
class Terms:
    """Relative error `epsilon` with probability 1 - `delta`, for a share `quantile` of queries."""

    epsilon: float = 0.1
    delta: float = 0.05
    quantile: float = QUANTILE

    def __post_init__(self) -> None:
        checks.positive(self.epsilon, "epsilon")
        if not 0 < checks.real_number(self.delta, "delta") < 1:
            raise BadInput(f"delta must lie between 0 and 1, got {self.delta:g}.")
        if not 0 < checks.real_number(self.quantile, "quantile") <= 1:
            raise BadInput(f"quantile must lie in (0, 1], got {self.quantile:g}.")

    @property
    def certified(self) -> float:
        """Largest relative root mean square error that Chebyshev turns into the promise."""
        return self.epsilon * float(np.sqrt(self.delta))

    @property
    def typical(self) -> float:
        """The same for a normal error on a line, the normal law with the widest tail."""
        return self.epsilon / float(norm.isf(self.delta / 2))

    def normal_tokens(self, trace: Array, trace_of_square: Array, size: Array) -> Array:
        """Return the n at which |N(0, C/n)| is below epsilon `size` with probability 1 - delta.

        |N(0, C)|^2 is taken as a multiple of a chi-squared variable with its mean tr C and its
        variance 2 tr C^2 (Satterthwaite).
        """
        freedom = trace**2 / np.maximum(trace_of_square, 1e-300)
        with np.errstate(divide="ignore", invalid="ignore"):
            widest = trace / freedom * chi2.isf(self.delta, freedom)
            return np.where(trace > 0, widest / (self.epsilon * size) ** 2, 1.0)

    def over_queries(self, needed: Array) -> float:
        """Return the number of tokens that is enough for the promised share of the queries."""
        return float(np.quantile(needed, self.quantile, method="higher"))
