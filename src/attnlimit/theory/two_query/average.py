"""Averages of a costly function over pairs of queries, by stratified draws, with their errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array

_PLAIN = 0.5  # share of the draws that does not follow the guess
_THREADS = 2


@dataclass(frozen=True, eq=False)
class MeanError:
    """E|m_n - m|^2 for each n, and the numerical error of the average over queries."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array

    @staticmethod
    def of_parts(
        n: NDArray[np.int64], own: tuple[Array, Array], pair: tuple[Array, Array]
    ) -> MeanError:
        """(1/n) own + (1 - 1/n) pair, each with its error (docs/theory/moments.md, eq. 4)."""
        error = np.hypot(own[1] / n, (1 - 1 / n) * pair[1])
        return MeanError(n, own[0] / n + (1 - 1 / n) * pair[0], error)


def sampled_mean(
    evaluate: Callable[[int], Array], guess: Array, weight: Array, picks: int, seed: int = 0
) -> tuple[Array, Array]:
    """Weighted mean of `evaluate` over candidates, and its standard error, from about `picks`.

    Candidates are sorted by the guess and cut into strata; two are drawn from each, which makes the
    estimate unbiased whatever the guess, and their differences are its error.

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
        values = np.array([evaluate(k) for k in range(len(weight))])
        total = np.tensordot(weight, values, axes=1)
        return total, np.zeros_like(total)
    mean_guess = float(weight @ guess / weight.sum())
    even = guess / mean_guess if mean_guess > 0 else np.ones(len(guess))
    measure = weight * (_PLAIN + (1 - _PLAIN) * even)
    chosen = _two_of_each(measure, np.argsort(guess, kind="stable"), picks // 2, seed).ravel()
    with ThreadPoolExecutor(_THREADS) as executor:
        values = np.array(list(executor.map(evaluate, chosen.tolist())))
    stands_for = measure.sum() * weight[chosen] / measure[chosen]
    scaled = values * stands_for.reshape(-1, *[1] * (values.ndim - 1))
    first, second = scaled[0::2], scaled[1::2]
    error = np.sqrt(((first - second) ** 2).sum(axis=0)) / (2 * len(first))
    return scaled.mean(axis=0), error


def _two_of_each(
    measure: Array, order: NDArray[np.int64], strata: int, seed: int
) -> NDArray[np.int64]:
    """Two candidates (strata, 2) from each stratum of equal measure along the order."""
    below = np.cumsum(measure[order])
    place = (np.arange(strata)[:, None] + np.random.default_rng(seed).random((strata, 2))) / strata
    drawn = np.searchsorted(below, place * below[-1], side="right")
    return order[np.minimum(drawn, len(order) - 1)]
