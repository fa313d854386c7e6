"""Smallest n that meets a tolerance, and the tolerance of a budget.

A budget promises a relative error epsilon with probability 1 - delta, for a share of the queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput

QUANTILE = 0.99


@dataclass(frozen=True)
class Tolerance:
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
        """Largest relative root mean square error that Chebyshev's inequality certifies."""
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

    def over_queries(self, values: Array) -> float:
        """Quantile of a number by query, at the share of queries that is promised."""
        return float(np.quantile(values, self.quantile, method="higher"))


def first_within(error: Array, tolerance: float) -> NDArray[np.int64]:
    """Index along the last axis from which `error` stays within tolerance; its length if none."""
    within = error <= tolerance
    return np.asarray(within.shape[-1] - np.cumprod(within[..., ::-1], axis=-1).sum(-1))


def power_law_guess(low: float, high: float, above: float, below: float, tolerance: float) -> float:
    """n at which the error is the tolerance, if it is a power of n between two n."""
    return float(low * (high / low) ** (np.log(above / tolerance) / np.log(above / below)))


def smallest_n(
    error_at: Callable[[int], float],
    low: int,
    high: int,
    tolerance: float,
    *,
    precision: float = 0.0,
    ends: tuple[float, float] | None = None,
) -> float:
    """Smallest n in (low, high] whose error is within tolerance; infinite if there is none.

    Bisection, helped by power-law guesses. The error at `low` is taken to be above the tolerance.

    Parameters
    ----------
    error_at : callable
        Error at an n, falling with n.
    precision : float
        Share of n by which the answer may be too large.
    ends : (float, float), optional
        Errors at `low` and `high`, if they are known.
    """
    above, below = ends if ends is not None else (np.inf, error_at(high))
    if below > tolerance:
        return float("inf")
    step = 0
    while high - low > max(1.0, precision * high):
        middle = (low + high) // 2
        if step % 3 < 2 and low > 0 and 0 < below < tolerance < above < np.inf:
            # A little to the side guessed last, so that the interval closes from both sides.
            aside = 1 + int(0.4 * precision * high)
            guess = power_law_guess(low, high, above, below, tolerance)
            middle = int(np.clip(guess + (aside if step % 2 else -aside), low + 1, high - 1))
        step += 1
        error = error_at(middle)
        if error <= tolerance:
            high, below = middle, error
        else:
            low, above = middle, error
    return float(high)


def smallest_on_grid(
    error_at: Callable[[int], float],
    n: NDArray[np.int64],
    error: Array,
    tolerance: float,
    precision: float = 0.0,
) -> float:
    """Smallest n within tolerance, from errors on an increasing grid; infinite if there is none."""
    place = int(first_within(error, tolerance))
    if place in (0, len(n)):
        return float(n[0]) if place == 0 else float("inf")
    ends = float(error[place - 1]), float(error[place])
    low, high = int(n[place - 1]), int(n[place])
    return smallest_n(error_at, low, high, tolerance, precision=precision, ends=ends)
