"""Confidence intervals of means of skewed draws, and errors by bootstrap.

Intervals are by Hall's cubic of the studentized mean.

A sample of squared errors that has missed the rare large ones is too low and underestimates its own
variance. With t the distance of the mean from the truth in its standard errors, and s the skewness
of the mean, that of the draws over the root of their number, t + s t^2/3 + s^2 t^3/27 + s/6 is
normal to order 1/draws (Hall 1992).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from attnlimit.checks import Array, probability

Number = TypeVar("Number", float, Array)
BOOTSTRAP, RESAMPLES = 200, 1000


def skewness(draws: Array) -> Array:
    """Third standardised moment along the first axis; zero where nothing varies."""
    return _moment(draws, 3, 0.0)


def excess_kurtosis(draws: Array) -> Array:
    """Fourth standardised moment along the first axis, less that of a normal law; zero if none."""
    return _moment(draws, 4, 3.0) - 3


def _moment(draws: Array, power: int, constant: float) -> Array:
    around = draws - draws.mean(axis=0)
    spread = np.sqrt((around**2).mean(axis=0))
    moment = (around**power).mean(axis=0)
    return np.divide(moment, spread**power, out=np.full_like(moment, constant), where=spread > 0)


def degrees_of_freedom(kurtosis: Array, draws: int) -> Array:
    """Degrees of freedom of a standard error: draws - 1, and fewer where tails are long (Box 1953).

    A variance from draws of excess kurtosis k varies as much as one from this many normal ones.
    """
    return 2 / (np.maximum(kurtosis, 0.0) / draws + 2 / (draws - 1))


def normal_score(distance: Array, skew: Array) -> Array:
    """The cubic: a distance in standard errors of a mean of this skewness, as a normal one."""
    return distance + skew * distance**2 / 3 + skew**2 * distance**3 / 27 + skew / 6


def studentized(quantile: float | Array, skew: Array) -> Array:
    """The inverse of the cubic: standard errors that correspond to a normal quantile."""
    symmetric = np.abs(skew) < 1e-6
    safe = np.where(symmetric, 1.0, skew)
    cubic = 3 * (np.cbrt(1 + safe * (quantile - safe / 6)) - 1) / safe
    return np.where(symmetric, quantile, cubic)


def interval(
    value: Array, stderr: Array, skew: Array, freedom: float | Array, level: float = 0.95
) -> tuple[Array, Array]:
    """Ends of an interval about means, at Student's quantiles.

    Where the draws are skewed to the right the upper end is farther away than the lower.
    """
    quantile = stdtrit(freedom, (1 + probability(level, "level")) / 2)
    low, high = (value - stderr * studentized(sign * quantile, skew) for sign in (1, -1))
    return low, high


def function_skewness(skew: Number, stderr: Number, curvature: Number) -> Number:
    """Skewness of a smooth function of a mean, for the same interval to first order.

    `curvature` is the second derivative over the first, `stderr` that of the mean.
    """
    return skew + 1.5 * curvature * stderr


def bootstrap(
    statistic: Callable[[Array], float], values: Array, rng: np.random.Generator
) -> tuple[float, float]:
    """Return a statistic of the values, and its standard error by bootstrap."""
    resampled = [statistic(rng.choice(values, len(values))) for _ in range(BOOTSTRAP)]
    return statistic(values), float(np.std(resampled))


def resampled_means(values: Array, documents: NDArray[Any]) -> Array:
    """Means of the values over documents drawn with replacement, (RESAMPLES,).

    The same documents are drawn for the same number of them, so that functions of several means,
    such as a rate, can be resampled too.
    """
    _, of = np.unique(documents, return_inverse=True)
    sums, counts = np.bincount(of, values), np.bincount(of)
    chance = np.full(len(counts), 1 / len(counts))
    drawn = np.random.default_rng(0).multinomial(len(counts), chance, size=RESAMPLES)
    return np.asarray(drawn @ sums / (drawn @ counts))
