"""Which n is the smallest that is enough? One answer for curves, laws and schemes.

Enough is an n from which on the error stays within a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlimit.checks import Array


def first_place(error: Array, tolerance: float) -> NDArray[np.int64]:
    """Place along the last axis from which on `error` stays small; its length where it never is."""
    within = error <= tolerance
    return np.asarray(within.shape[-1] - np.cumprod(within[..., ::-1], axis=-1).sum(-1))


def first_enough(error: Array, tolerance: float, n: ArrayLike) -> Array:
    """First n from which on each row of `error` (R, len(n)) stays small; infinite where none is."""
    return np.append(np.asarray(n, dtype=np.float64), np.inf)[first_place(error, tolerance)]


def aimed(low: float, high: float, above: float, below: float, tolerance: float) -> float:
    """Where the error is the tolerance if it is a power of n between two n."""
    return float(low * (high / low) ** (np.log(above / tolerance) / np.log(above / below)))


def smallest(
    at: Callable[[int], float],
    n: NDArray[np.int64],
    error: Array,
    tolerance: float,
    precision: float = 0.0,
) -> float:
    """Smallest n whose error `at(n)` is enough, from the errors on a grid; infinite if none is."""
    place = int(first_place(error, tolerance))
    if place in (0, len(n)):
        return float(n[0]) if place == 0 else float("inf")
    left, right = int(n[place - 1]), int(n[place])
    return narrowed(at, left, right, tolerance, precision, (error[place - 1], error[place]))


def narrowed(
    at: Callable[[int], float],
    low: int,
    high: int,
    tolerance: float,
    precision: float = 0.0,
    ends: tuple[float, float] | None = None,
) -> float:
    """Narrow an interval to an n that is enough, within a share `precision` of the smallest.

    `low` is not enough; infinite if `high` is not either. `ends` has the errors there, if known.
    """
    above, below = (at(low), at(high)) if ends is None else ends
    if below > tolerance:
        return float("inf")
    turn = 0
    while high - low > max(1.0, precision * high):
        middle = (low + high) // 2
        if turn % 3 < 2 and 0 < below < tolerance < above < np.inf:
            # A little to the side that was guessed last, so that the interval closes from both.
            aside = 1 + int(0.4 * precision * high)
            guess = aimed(low, high, above, below, tolerance) + (aside if turn % 2 else -aside)
            middle = int(np.clip(guess, low + 1, high - 1))
        turn += 1
        error = at(middle)
        if error <= tolerance:
            high, below = middle, error
        else:
            low, above = middle, error
    return float(high)
