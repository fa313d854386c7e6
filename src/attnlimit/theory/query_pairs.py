"""Average a costly function of two queries over all pairs, from few well-chosen ones.

A few nearly parallel pairs carry much of the average. So a large quasi-random pool of pairs is
sorted by how much each should matter, pairs are picked along it more densely at the top, a
log-linear surrogate is fitted to them, and the surrogate's average over the pool is corrected by
the picked pairs' residuals, whose spread is the error reported.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array

_FIRST = 24  # so many picks are tried first,
_ENOUGH = 0.004  # and are enough if their relative error is below this
_DENSITY = 2.5  # picks at the top of the pool are this much denser than picks at the bottom


@dataclass(frozen=True, eq=False)
class PairPool:
    """Candidate pairs: how much each should matter, and what else tells them apart."""

    importance: Array  # (M,)
    features: Array  # (M, f), centred and of order one

    def design(self, rows: NDArray[np.int64] | slice = slice(None)) -> Array:
        """Regressors of the log-linear surrogate."""
        key = self.importance[rows] / max(float(self.importance.max()), 1e-300)
        columns = [np.ones_like(key), key, key**2, key**3]
        for feature in self.features[rows].T:
            columns += [feature, feature * key, feature**2]
        return np.stack(columns, axis=1)


def average_over_pairs(
    pool: PairPool, evaluate: Callable[[int], Array], picks: int, threads: int = 2
) -> tuple[Array, Array]:
    """Mean of `evaluate` over the pool and its standard error, from at most `picks` pairs.

    `evaluate` takes the index of a pair and returns one number for each n.
    """
    for number in (min(_FIRST, picks), picks):
        chosen, weight = pick(pool.importance, number)
        with ThreadPoolExecutor(threads) as executor:
            found = np.array(list(executor.map(evaluate, [int(i) for i in chosen])))
        columns = [_corrected_mean(pool, chosen, weight, column) for column in found.T]
        mean, error = (np.array(part) for part in zip(*columns, strict=True))
        if (error <= _ENOUGH * np.abs(mean)).all():
            break
    return mean, error


def pick(importance: Array, picks: int) -> tuple[NDArray[np.int64], Array]:
    """Indices spread along the sorted importance, denser at its top, and their weights."""
    size = len(importance)
    picks = min(picks, size)
    order = np.argsort(importance, kind="stable")
    place = (np.arange(picks) + 0.5) / picks
    chosen = order[((1 - (1 - place) ** _DENSITY) * size).astype(np.int64)]
    weight = (1 - place) ** (_DENSITY - 1)
    return chosen, weight / weight.sum()


def controlled_mean(
    found: Array, control: Array, control_mean: Array, weight: Array
) -> tuple[Array, Array]:
    """Weighted mean of each column, corrected by a control whose true mean is known."""
    centred = control - weight @ control
    variance = weight @ centred**2
    slope = np.divide(
        weight @ (centred * found), variance, out=np.zeros_like(variance), where=variance > 0
    )
    residual = found - slope * control
    mean = weight @ residual
    error = np.sqrt((weight**2) @ (residual - mean) ** 2)
    return mean + slope * control_mean, error


def _corrected_mean(
    pool: PairPool, chosen: NDArray[np.int64], weight: Array, found: Array
) -> tuple[float, float]:
    plain = float(weight @ found)
    scale = float(weight @ np.abs(found))
    if scale == 0:
        return 0.0, 0.0
    surrogate, everywhere = _surrogate(pool, chosen, weight, found / scale)
    slope = float(weight @ (found * surrogate) / max(float(weight @ surrogate**2), 1e-300))
    residual = found - slope * surrogate
    corrected = slope * float(everywhere.mean()) + float(weight @ residual)
    spread = float(weight @ residual)
    used = min(pool.design(slice(0, 1)).shape[1], len(chosen) - 2)
    lost = len(chosen) / (len(chosen) - used)  # the fit's own degrees of freedom
    error = float(np.sqrt(lost * (weight**2) @ (residual - spread) ** 2))
    plain_error = float(np.sqrt((weight**2) @ (found - plain) ** 2))
    if not error < plain_error:
        return plain, plain_error
    return corrected, error


def _surrogate(
    pool: PairPool, chosen: NDArray[np.int64], weight: Array, found: Array
) -> tuple[Array, Array]:
    """exp of a least-squares fit to log found, where it is positive; at the picks, everywhere."""
    positive = np.maximum(found, 1e-6 * float(found.max(initial=0.0)) + 1e-300)
    root = np.sqrt(weight * positive)
    design = pool.design(chosen)
    penalty = 1e-4 * np.sqrt(float((root**2).sum())) * np.eye(design.shape[1])
    stacked = np.concatenate([design * root[:, None], penalty])
    target = np.concatenate([np.log(positive) * root, np.zeros(design.shape[1])])
    coefficients = np.linalg.lstsq(stacked, target, rcond=None)[0]
    at_picks = design @ coefficients
    low, high = float(at_picks.min()), float(at_picks.max())
    everywhere = np.clip(pool.design() @ coefficients, low, high + 0.5)
    return np.exp(at_picks), np.exp(everywhere)
