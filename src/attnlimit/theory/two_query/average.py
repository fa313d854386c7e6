"""Averages of a costly function over pairs of queries, with their errors.

A few nearly parallel pairs carry much of the average. A large quasi-random pool of pairs is sorted
by how much each should matter, pairs are picked along it more densely at the top, a log-linear
surrogate is fitted to most of them, and its average over the pool is corrected by the residuals of
the others, each pick left out in turn: their spread is the error reported.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array


@dataclass(frozen=True, eq=False)
class MeanError:
    """E|m_n - m|^2 for each n, and the numerical error of the average over queries."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array


def combine(
    n: NDArray[np.int64], own: Array, own_error: Array, pair: Array, pair_error: Array
) -> MeanError:
    """(1/n) own + (1 - 1/n) pair, with its error."""
    error = np.hypot(own_error / n, (1 - 1 / n) * pair_error)
    return MeanError(n, own / n + (1 - 1 / n) * pair, error)


def average_errors(found: list[MeanError]) -> MeanError:
    """Average over stand-ins of one measure; how they differ counts as numerical error."""
    mse = np.array([f.mse for f in found])
    inner = np.linalg.norm([f.numerical_error for f in found], axis=0) / len(found)
    error = np.hypot(inner, mse.std(axis=0))
    return MeanError(found[0].n, mse.mean(axis=0), error)


_RICH = 60  # picks from which on the surrogate has all its terms
_FOLDS = 6
_RIDGE = 3e-3
_FEWEST = 16  # picks below which no surrogate is fitted, and none are tried
_FEWER = 9  # the least part of the picks that is tried
_STAGES = ((1, 0.005), (3, 0.01), (9, np.inf))  # parts, and the relative error that is enough
_SCARCE = 24  # few picks know their error badly: it counts 1 + this / picks times
_DENSITY = 3.0  # picks crowd at the top of the pool: quantile 1 - (1 - place)^this


@dataclass(frozen=True, eq=False)
class PairPool:
    """Candidate pairs: how much each should matter, and what else tells them apart."""

    importance: Array  # (M,)
    features: Array  # (M, f), centred and of order one
    weight: Array  # (M,): what each stands for, of sum one

    @staticmethod
    def of(
        importance: Array,
        weight: Array,
        tilts: tuple[Array, Array],
        sizes: tuple[Array, Array],
        values: Array,
    ) -> PairPool:
        """Pairs told apart by their tilts (M, d), of these sizes, and what the values make of them.

        The length of the outputs against the average direction's, and the inner product of these,
        by the sign of the tilts' own.
        """
        typical = max(float(np.sqrt(weight @ sizes[0] ** 2)), 1e-300)
        lengths = (np.maximum(np.linalg.norm(t, axis=1), 1e-300)[:, None] for t in tilts)
        one, other = (t / size @ values.T for t, size in zip(tilts, lengths, strict=True))
        usual = max(float((values**2).sum()) / values.shape[1], 1e-300)
        gain = ((one**2).sum(axis=1) + (other**2).sum(axis=1)) / (2 * usual) - 1
        sign = np.where((tilts[0] * tilts[1]).sum(axis=1) < 0, -1.0, 1.0)
        features = [
            (sizes[0] + sizes[1]) / (2 * typical) - 1,
            np.abs(sizes[0] - sizes[1]) / typical,
            gain,
            sign * (one * other).sum(axis=1) / usual,
        ]
        return PairPool(importance, np.stack(features, axis=1), weight)

    def design(self, rich: bool, rows: NDArray[np.int64] | slice = slice(None)) -> Array:
        """Regressors of the log-linear surrogate; `rich` where many pairs can bear it."""
        overlap = self.importance[rows]
        key = overlap / max(float(self.importance.max()), 1e-300)
        features = self.features[rows].T
        # Pairs are asked with both signs, which share e^overlap and e^-overlap.
        columns = [np.ones_like(key), np.logaddexp(overlap, -overlap), key, key**2, *features]
        if rich:
            columns += [key**3, *(f * key for f in features), *(f**2 for f in features)]
        return np.stack(columns, axis=1)


def average_over_pairs(
    pool: PairPool,
    evaluate: Callable[[int], Array],
    picks: int,
    threads: int = 2,
    other: Array | float = 0.0,
) -> tuple[Array, Array]:
    """Mean of `evaluate` over the pool and its standard error, from at most `picks` pairs.

    `evaluate` takes the index of a pair and returns one number for each n. Its errors matter
    relative to its mean plus `other`, which is known and will be added.
    """
    found: dict[int, Array] = {}
    with ThreadPoolExecutor(threads) as executor:
        # The middle one of each three picks is itself a set of picks: try those first.
        for part, enough in _STAGES:
            count = max(picks // _FEWER, 1) * part
            if count < _FEWEST and enough < np.inf:
                continue
            chosen, weight = pick(pool.importance, count, pool.weight)
            new = [index for index in chosen.tolist() if index not in found]
            found |= zip(new, executor.map(evaluate, new), strict=True)
            values = np.array([found[index] for index in chosen.tolist()])
            mean, error = _corrected_mean(pool, chosen, weight, values)
            if (error <= enough * np.abs(mean + other)).all():
                break
    return mean, error


def pick(
    importance: Array, picks: int, share: Array | None = None
) -> tuple[NDArray[np.int64], Array]:
    """Indices spread along the sorted importance, denser at its top, and their weights.

    `share` is the probability of each candidate; uniform by default.
    """
    size = len(importance)
    share = np.full(size, 1 / size) if share is None else share
    picks = min(picks, size)
    order = np.argsort(importance, kind="stable")
    below = np.cumsum(share[order])
    place = (np.arange(picks) + 0.5) / picks
    quantile = (1 - (1 - place) ** _DENSITY) * below[-1]
    chosen = order[np.minimum(np.searchsorted(below, quantile), size - 1)]
    edges = 1 - (1 - np.arange(picks + 1) / picks) ** _DENSITY
    return chosen, np.diff(edges)


def controlled_mean(
    found: Array, control: Array, control_mean: Array, weight: Array
) -> tuple[Array, Array]:
    """Weighted mean of each column, corrected by a control whose true mean is known."""
    centred = control - weight @ control
    variance = weight @ centred**2
    varies = variance > 1e-12 * (weight @ control**2)
    slope = np.zeros_like(variance)
    np.divide(weight @ (centred * found), variance, out=slope, where=varies)
    residual = found - slope * control
    mean = weight @ residual
    error = np.sqrt((weight**2) @ (residual - mean) ** 2)
    return mean + slope * control_mean, error


def _corrected_mean(
    pool: PairPool, chosen: NDArray[np.int64], weight: Array, found: Array
) -> tuple[Array, Array]:
    """Mean over the pool of each column and its error, by whichever of two errs less.

    The plain mean, or a surrogate's that is corrected by the picks it has not seen.
    """
    means = [_weighted(column, weight) for column in found.T]
    if len(found) >= _FEWEST:
        rich = len(found) >= _RICH
        designs = pool.design(rich, chosen), pool.design(rich)
        for k, column in enumerate(found.T):
            if np.abs(column).max() > 0:
                surrogate = _cross_fitted(pool, designs, chosen, weight, column)
                means[k] = min(means[k], surrogate, key=lambda mean: mean[1])
    mean, error = np.array(means).T
    return mean, error * (1 + _SCARCE / len(found))


def _cross_fitted(
    pool: PairPool,
    designs: tuple[Array, Array],
    chosen: NDArray[np.int64],
    weight: Array,
    found: Array,
) -> tuple[float, float]:
    """Mean of a surrogate over the pool, corrected by its residuals, and its error.

    Each surrogate is corrected by the picks it has not seen, so that its residuals, and how the
    surrogates differ, say honestly what they are worth.
    """
    design, everywhere = designs
    averages, residual = np.empty(_FOLDS), np.empty(len(found))
    for fold in range(_FOLDS):
        kept = np.arange(len(found)) % _FOLDS == fold
        seen = ~kept
        coefficients, low, high = _fit(design[seen], weight[seen], found[seen])
        # Past the picks seen it may grow as what two queries share does at most: e^overlap.
        top = high + np.maximum(pool.importance - pool.importance[chosen[seen]].max(), 0.0)
        surrogate = np.exp(np.clip(design @ coefficients, low, top[chosen]))
        slope = weight[seen] @ (found * surrogate)[seen] / (weight[seen] @ surrogate[seen] ** 2)
        residual[kept] = (found - slope * surrogate)[kept]
        overall = np.exp(np.clip(everywhere @ coefficients, low, top))
        averages[fold] = slope * (pool.weight @ overall)
    left, error = _weighted(residual, weight)
    return float(averages.mean()) + left, float(np.hypot(error, averages.std()))


def _weighted(values: Array, weight: Array) -> tuple[float, float]:
    """Weighted mean and its standard error."""
    share = weight / weight.sum()
    mean = float(share @ values)
    return mean, float(np.sqrt(share**2 @ (values - mean) ** 2))


def _fit(design: Array, weight: Array, found: Array) -> tuple[Array, float, float]:
    """Least squares for log found, where it is positive; the coefficients, and a safe range."""
    positive = np.maximum(found, 1e-6 * float(np.abs(found).max()))
    root = np.sqrt(weight * positive)
    penalty = _RIDGE * np.sqrt(float((root**2).sum())) * np.eye(design.shape[1])
    stacked = np.concatenate([design * root[:, None], penalty])
    target = np.concatenate([np.log(positive) * root, np.zeros(design.shape[1])])
    coefficients = np.linalg.lstsq(stacked, target, rcond=None)[0]
    at_picks = design @ coefficients
    return coefficients, float(at_picks.min()) - 0.5, float(at_picks.max()) + 0.5


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
