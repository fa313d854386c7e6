"""An average over very many pairs from few, with an error that can be trusted.

Pairs are sorted by how large each should be and cut into strata of equal expected size; each
stratum gives two pairs, drawn independently in proportion to that. So the estimate is unbiased
whatever the guess, and how the two differ says what it is worth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array

_PLAIN = 0.5  # share of the draws that does not follow the guess


def sampled_mean(
    evaluate: Callable[[int], Array], guess: Array, weight: Array, picks: int, seed: int = 0
) -> tuple[Array, Array]:
    """Weighted mean of `evaluate` over candidates, and its standard error, from about `picks`.

    Parameters
    ----------
    evaluate : callable
        Takes the index of a candidate and returns an array.
    guess : (M,) array
        How large its value may be, at least zero.
    weight : (M,) array
        What each candidate stands for; summed up with the values.
    picks : int
        If there are no more candidates than this, all of them are summed and the error is zero.
    """
    if len(weight) <= picks:
        found = np.array([evaluate(k) for k in range(len(weight))])
        total = np.tensordot(weight, found, axes=1)
        return total, np.zeros_like(total)
    mean_guess = float(weight @ guess / weight.sum())
    even = guess / mean_guess if mean_guess > 0 else np.ones(len(guess))
    measure = weight * (_PLAIN + (1 - _PLAIN) * even)
    chosen = _two_of_each(measure, np.argsort(guess, kind="stable"), picks // 2, seed)
    each = np.array([evaluate(k) for k in chosen.ravel().tolist()])
    stands_for = measure.sum() * weight[chosen.ravel()] / measure[chosen.ravel()]
    scaled = each * stands_for.reshape(-1, *[1] * (each.ndim - 1))
    first, second = scaled[0::2], scaled[1::2]
    strata = len(first)
    error = np.sqrt(((first - second) ** 2).sum(axis=0)) / (2 * strata)
    return scaled.mean(axis=0), error


def _two_of_each(
    measure: Array, order: NDArray[np.int64], strata: int, seed: int
) -> NDArray[np.int64]:
    """Two candidates (strata, 2) from each stratum of equal measure along the order."""
    below = np.cumsum(measure[order])
    place = (np.arange(strata)[:, None] + np.random.default_rng(seed).random((strata, 2))) / strata
    found = np.searchsorted(below, place * below[-1], side="right")
    return order[np.minimum(found, len(order) - 1)]
