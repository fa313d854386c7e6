"""Two queries over the same n of N tokens, all different: drawn without replacement.

Given one or two of them, the others are a uniform subset of the rest, and the sum over subsets is
an average over the circle of products over tokens (`attnlimit.theory.circle`). With f = e^{-w}
or e^{-w-w'}, b = 1 - p + p z f and y = 1 - (1-p)/b, key k is met in y_k of them, and

    E[(k + sum w u).(k' + sum w' u'); subset] = prod b [(k + A).(k' + A') + sum y(1-y) w w' u.u'],

A = sum y w u and A' = sum y w' u' (docs/theory/moments.md, the two-query law).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.circle import Complex, circle
from attnlimit.theory.one_query.quadrature import (
    PAIRS,
    Precision,
    alpha_grid,
    check_weights,
    key_weights,
)
from attnlimit.theory.two_query.average import MeanError, combine
from attnlimit.theory.two_query.population import (
    MOST_QUERIES,
    Population,
    Responses,
    pair_average,
)

_NEGLIGIBLE = 1e-9
_SPREAD, _DRAWN_SPREAD = 6.5, 5.0
"""Deviations of the size that are told apart; fewer in drawn pairs, whose errors may be 1e-5."""
_TOLERANCE = 1e-5


class _Subsets(NamedTuple):
    """`sample` of the tokens that are not known, summed over the circle."""

    mark: Complex
    weight: Complex
    share: float

    @staticmethod
    def of(rest: int, sample: int, spread: float) -> _Subsets:
        mark, weight = circle(rest, sample, spread)
        return _Subsets(mark, weight, sample / max(rest, 1))

    def meet(self, faded: Array) -> tuple[Complex, Complex]:
        """Weighted products (..., theta) and how far each key is met (..., theta, N)."""
        left = (1 - self.share) + (self.share * faded)[..., None, :] * self.mark[:, None]
        return self.weight * left.prod(axis=-1), 1 - (1 - self.share) / left


@dataclass(frozen=True, eq=False)
class DistinctPopulation(Population):
    """Finitely many tokens, of which n different ones are drawn; all are equally likely."""

    repeats = False

    def sharing(self, n: NDArray[np.int64]) -> Array:
        """(n - 2)(N - 3)/(N - n), with N/(N - 2) for the two queries that no other key is.

        A key that is there leaves fewer of the others: its response is (N-n)/(N-3) of what it
        alone does, and the variance of a sum has that factor once.
        """
        size = len(self.values)
        return (n - 2) * size / (size - 2) * max(size - 3, 1) / np.maximum(size - n, 1)

    def response(self, i: int, n: NDArray[np.int64]) -> tuple[Array, Array, Array]:
        others = np.delete(np.arange(len(self.values)), self.rows[i])
        own = self.own(i, self.rows[[i]])
        scores, centred = self.scores[i, others], self.values[others] - self.outputs[i]
        alpha = alpha_grid(self.scores[i], self.weights, n, PAIRS, own.score)
        fade, known = own.on(alpha)
        w, w_known = (key_weights(s - alpha[:, None]) for s in (scores, own.score))
        energy = (centred**2).sum(axis=1)
        mean, square = np.empty((len(n), centred.shape[1])), np.empty(len(n))
        moved = np.zeros((len(n), *self.values.shape))
        for at, count in enumerate(n.tolist()):
            subsets = _Subsets.of(len(others), count - 1, _SPREAD)
            product, met = subsets.meet(np.exp(-w))  # (J, theta), (J, theta, N - 1)
            product *= ((alpha[1] - alpha[0]) * fade)[:, None]
            pull = known[:, None] + met @ (w[:, :, None] * centred)
            free = met * (1 - met)
            total = (product * (w_known + (met @ w[:, :, None])[..., 0])).sum().real
            check_weights(np.array(total), _TOLERANCE)
            mean[at] = np.tensordot(product, pull, axes=2).real
            spread = (free @ (w**2 * energy)[:, :, None])[..., 0]
            square[at] = (product * ((pull**2).sum(axis=-1) + spread)).sum().real
            if count == 1:
                continue
            flat = met.reshape(-1, len(others))
            there = flat.T @ (product[..., None] * pull).reshape(-1, centred.shape[1])
            alone = ((product[:, None] @ free)[:, 0] * w).sum(axis=0)
            moved[at, others] = (there + alone[:, None] * centred).real / subsets.share - mean[at]
        limit = self.outputs[i] - self.mean
        return mean + limit, square + 2 * mean @ limit + limit @ limit, moved

    def pair(self, i: int, j: int, n: NDArray[np.int64], precision: Precision = PAIRS) -> Array:
        keys = self.rows[[i, j]]
        others = np.delete(np.arange(len(self.values)), keys)
        own = [self.own(k, keys) for k in (i, j)]
        alpha = [
            alpha_grid(self.scores[k], self.weights, n, precision, known.score)
            for k, known in zip((i, j), own, strict=True)
        ]
        centred = [self.values[others] - self.outputs[k] for k in (i, j)]
        w, w_other = (
            key_weights(self.scores[k, others] - a[:, None])
            for k, a in zip((i, j), alpha, strict=True)
        )
        (fade, known), (fade_other, known_other) = (
            keys.on(a) for keys, a in zip(own, alpha, strict=True)
        )
        product = (centred[0] * centred[1]).sum(axis=1)
        pulled = w_other[:, :, None] * centred[1]  # (J', N - 2, c)
        area = float(np.prod([a[1] - a[0] for a in alpha]))
        limits = self.outputs[[i, j]] - self.mean
        found = np.full(len(n), float(limits[0] @ limits[1]))
        for at, count in enumerate(n.tolist()):
            subsets = _Subsets.of(len(others), max(count - 2, 0), self._spread(precision))
            for row, columns in _relevant(w, w_other, fade, fade_other, subsets.share):
                faded = np.exp(-w[row] - w_other[columns])
                weight, met = subsets.meet(faded)  # (j', theta), (j', theta, N - 2)
                pull = known[row] + met @ (w[row][:, None] * centred[0])
                other = known_other[columns][:, None] + met @ pulled[columns]
                both = (w[row] * w_other[columns] * product)[:, :, None]
                value = (pull * other).sum(axis=-1) + ((met - met**2) @ both)[..., 0]
                weight *= (area * fade[row] * fade_other[columns])[:, None]
                found[at] += float((weight * value).sum().real)
        for k, other in ((0, 1), (1, 0)):
            found += self._with(i if k == 0 else j, keys, n) @ limits[other]
        return found

    def _with(self, i: int, keys: NDArray[np.int64], n: NDArray[np.int64]) -> Array:
        """E Gamma_n(x_i) less its limit, given that these tokens are among the keys."""
        others = np.delete(np.arange(len(self.values)), keys)
        own = self.own(i, keys)
        alpha = alpha_grid(self.scores[i], self.weights, n, PAIRS, own.score)
        fade, known = own.on(alpha)
        w = key_weights(self.scores[i, others] - alpha[:, None])
        pulls = w[:, :, None] * (self.values[others] - self.outputs[i])
        step, found = alpha[1] - alpha[0], []
        for count in n.tolist():
            subsets = _Subsets.of(len(others), max(count - 2, 0), _SPREAD)
            product, met = subsets.meet(np.exp(-w))
            product *= (step * fade)[:, None]
            found.append(np.tensordot(product, known[:, None] + met @ pulls, axes=2).real)
        return np.array(found)

    def _spread(self, precision: Precision) -> float:
        return _SPREAD if precision is PAIRS else _DRAWN_SPREAD


def _relevant(
    w: Array, w_other: Array, fade: Array, fade_other: Array, share: float
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Rows of the grid, and the columns in which the integrand is not negligible."""
    for row in range(len(w)):
        size = np.log(fade[row] + 1e-300) + np.log(fade_other + 1e-300)
        size = size + np.log1p(share * np.expm1(-w[row] - w_other)).sum(axis=1)
        columns = np.flatnonzero(size > np.log(_NEGLIGIBLE))
        if len(columns):
            yield row, columns


def distinct_mean_error(
    scores: Array, values: Array, n: NDArray[np.int64], picks: int = 32
) -> MeanError:
    """E|m_n - m|^2 for n different tokens of N; arguments as for `population_mean_error`.

    A pair costs about a hundred times what it does with replacement, so that fewer are drawn.
    """
    size = len(values)
    random = n[n < size]  # all of them give the mean itself
    mse, error = np.zeros((2, len(n)))
    if len(random):
        weights = np.full(size, 1 / size)
        population = DistinctPopulation.of(scores, values, weights, MOST_QUERIES)
        responses = Responses.of(population, random)
        single = responses.squares @ population.share
        pair, pair_error = pair_average(responses, picks)
        found = combine(random, single, np.zeros(len(random)), pair, pair_error)
        at = n < size
        mse[at], error[at] = found.mse, found.numerical_error
    return MeanError(n, mse, error)
