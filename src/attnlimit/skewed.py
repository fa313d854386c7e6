"""Where is the truth when draws are skewed? Hall's cubic of the studentised mean, both ways.

A sample of squared errors that has missed the rare large ones is too low and thinks itself precise.
With t the distance of the mean from the truth in its standard errors, and s the skewness of the
mean, that of the draws over the root of their number, t + s t^2/3 + s^2 t^3/27 + s/6 is normal to
order 1/draws (Hall 1992).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

from attnlimit.checks import Array, probability

STRAIGHT = 1e-6
Number = TypeVar("Number", float, Array)


def skewness(draws: Array) -> Array:
    """Third standardised moment along the first axis; zero where nothing varies."""
    around = draws - draws.mean(axis=0)
    spread = np.sqrt((around**2).mean(axis=0))
    third = (around**3).mean(axis=0)
    return np.divide(third, spread**3, out=np.zeros_like(third), where=spread > 0)


def excess_kurtosis(draws: Array) -> Array:
    """Fourth standardised moment along the first axis, less that of a normal law; zero if none."""
    around = draws - draws.mean(axis=0)
    square = (around**2).mean(axis=0)
    fourth = (around**4).mean(axis=0)
    return np.divide(fourth, square**2, out=np.full_like(fourth, 3.0), where=square > 0) - 3


def freedom(kurtosis: Array, draws: int) -> Array:
    """Degrees of freedom of a standard error: draws - 1, and fewer where tails are long (Box 1953).

    A variance from draws of excess kurtosis k varies as much as one from this many normal ones.
    """
    return 2 / (np.maximum(kurtosis, 0.0) / draws + 2 / (draws - 1))


def straightened(distance: Array, skew: Array) -> Array:
    """The cubic: a distance in standard errors of a mean of this skewness, as a normal one."""
    return distance + skew * distance**2 / 3 + skew**2 * distance**3 / 27 + skew / 6


def bent(quantile: float | Array, skew: Array) -> Array:
    """Its inverse: how many standard errors a normal quantile is."""
    straight = np.abs(skew) < STRAIGHT
    safe = np.where(straight, 1.0, skew)
    found = 3 * (np.cbrt(1 + safe * (quantile - safe / 6)) - 1) / safe
    return np.where(straight, quantile, found)


def interval(
    value: Array, stderr: Array, skew: Array, freedom: float | Array, level: float = 0.95
) -> tuple[Array, Array]:
    """Ends of an interval about means, at Student's quantiles.

    Where the draws are skewed to the right the upper end is farther away than the lower.
    """
    tail = (1 - probability(level, "level")) / 2
    quantile = stdtrit(freedom, 1 - tail)
    return value - stderr * bent(quantile, skew), value - stderr * bent(-quantile, skew)


def of_function(skew: Number, stderr: Number, curvature: Number) -> Number:
    """The skewness that a smooth function of a mean has, for the same interval to first order.

    `curvature` is the second derivative over the first, `stderr` that of the mean.
    """
    return skew + 1.5 * curvature * stderr
