"""Error of the mean output over n of finitely many tokens: the two-query law by sums.

n tokens are drawn with replacement from a population of N with known scores and values (the tokens
of a document and one head); each drawn token is a query and a key. The law is an equality for each
pair of queries. All of the average over pairs that is first order in the response to a token is
summed; the rest is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import (
    PAIRS,
    SAMPLED,
    Precision,
    Sweep,
    alpha_grid,
    late_grid,
)
from attnlimit.theory.two_query.law import MeanError, OneQuery, OwnKeys, PairTable, sampled_mean


@dataclass(frozen=True, eq=False)
class Population:
    """Finitely many tokens: all of them keys, and some as queries that stand for all."""

    rows: NDArray[np.int64]  # (R,): which tokens are queries
    share: Array  # (R,): what each stands for, of sum one
    scores: Array  # (R, N)
    attention: Array  # (R, N)
    outputs: Array  # (R, d_v): the queries' limits
    values: Array  # (N, d_v)
    weights: Array  # (N,)

    @staticmethod
    def of(scores: Array, values: Array, weights: Array) -> Population:
        """Tokens with scores (N, N); all of them are queries, or a fixed shuffle's first ones."""
        rows = np.sort(np.random.default_rng(0).permutation(len(values))[:MOST_QUERIES])
        with np.errstate(divide="ignore"):
            attention = softmax(scores[rows] + np.log(weights), axis=1)
        share = weights[rows] / weights[rows].sum()
        outputs = attention @ values
        return Population(rows, share, scores[rows], attention, outputs, values, weights)

    @cached_property
    def mean(self) -> Array:
        """The mean limit, (d_v,)."""
        return self.share @ self.outputs

    def own(self, query: int, keys: NDArray[np.int64]) -> OwnKeys:
        """Keys that are there for certain, as a query sees them."""
        return OwnKeys(self.scores[query, keys], self.values[keys] - self.outputs[query])

    def response(self, i: int, n: NDArray[np.int64]) -> tuple[Array, Array, Array]:
        """E Gamma_n(x_i) - m (len n, c), E|Gamma_n(x_i) - m|^2 (len n), and the response.

        The query's own token is one of the keys. The response (len n, N, c) is by how much each
        token, known to be another one, moves the mean.
        """
        own = self.own(i, self.rows[[i]])
        centred = self.values - self.outputs[i]
        alpha = alpha_grid(self.scores[i], self.weights, n, PAIRS, own.score)
        sweep = Sweep.over(self.scores[i], self.weights, alpha)
        drift = sweep.moment(1, centred)
        fade, known = own.on(alpha)
        gone = np.exp(-sweep.w)  # (J, N)
        others = n.astype(np.float64)[:, None] - 2
        none, one = (fade * sweep.meeting(others, k) for k in range(2))  # (len n, J)
        vector = none[:, :, None] * known + one[:, :, None] * drift  # (len n, J, c)
        with_key = gone.T @ vector + (none @ (sweep.w * gone))[:, :, None] * centred
        mean = np.tensordot(with_key, self.weights, axes=(1, 0))
        limit = self.outputs[i] - self.mean
        alone = self._one_query(i, own, n)
        square = alone.square((centred**2).sum(axis=1)) + 2 * alone.mean() @ limit + limit @ limit
        return mean + limit, square, with_key - mean[:, None]

    def pair(self, i: int, j: int, n: NDArray[np.int64], precision: Precision = PAIRS) -> Array:
        """E[(Gamma_n(x_i) - m).(Gamma_n(x_j) - m)], both tokens among the n keys."""
        keys = self.rows[[i, j]]
        own = (self.own(i, keys), self.own(j, keys))
        scores = (self.scores[i], self.scores[j])
        first, second = (
            late_grid(s, self.weights, n, precision, k.score)
            for s, k in zip(scores, own, strict=True)
        )
        centred = (self.values - self.outputs[i], self.values - self.outputs[j])
        table = PairTable.of_nodes(scores, self.weights, centred, (first, second))
        limits = self.outputs[[i, j]] - self.mean
        joint = table.moment(own, n) + limits[0] @ limits[1]
        fine = (first, second) if precision == PAIRS else (None, None)
        for here, keys_here, alpha, other in zip((i, j), own, fine, limits[::-1], strict=True):
            joint += self._one_query(here, keys_here, n, alpha).mean() @ other
        return joint

    def _one_query(
        self, query: int, own: OwnKeys, n: NDArray[np.int64], alpha: Array | None = None
    ) -> OneQuery:
        centred = self.values - self.outputs[query]
        return OneQuery.of(self.scores[query], self.weights, centred, own, n, alpha)


@dataclass(frozen=True, eq=False)
class Responses:
    """The response of every query, in sums that need no array of queries by keys by values.

    `moved` is the average response to each token.
    """

    n: NDArray[np.int64]
    population: Population
    means: Array  # (len n, R, c): E Gamma_n(x_i) - m, the token itself among the keys
    squares: Array  # (len n, R): E|Gamma_n(x_i) - m|^2
    moved: Array  # (len n, N, c)
    energy: Array  # (len n, R): sum over keys of their probability times |h_i|^2

    @staticmethod
    def of(population: Population, n: NDArray[np.int64]) -> Responses:
        """Go through the queries once."""
        rows, share = population.rows, population.share
        shape = len(n), len(rows)
        means = np.empty((*shape, population.values.shape[1]))
        squares, energy = np.zeros(shape), np.zeros(shape)
        moved = np.zeros((len(n), *population.values.shape))
        for i in range(len(rows)):
            means[:, i], squares[:, i], h = population.response(i, n)
            moved += share[i] * h
            energy[:, i] = (h**2).sum(axis=2) @ population.weights
        return Responses(n, population, means, squares, moved, energy)

    def average(self) -> Array:
        """Average of `pair` over two independent queries, the same one twice included, by n."""
        share, rows = self.population.share, self.population.rows
        centre = share @ self.means
        as_keys = (self.means * self.moved[:, rows]).sum(axis=2) @ share
        shared = (self.moved**2).sum(axis=2) @ self.population.weights
        return np.asarray((centre**2).sum(axis=1) + 2 * as_keys + (self.n - 2) * shared)

    def pair(self, i: int, j: int) -> Array:
        """E[(Gamma_n(x_i) - m).(Gamma_n(x_j) - m)] to first order in the response, for each n."""
        (mean, _, h), (mean_2, _, g) = (self.population.response(k, self.n) for k in (i, j))
        row, column = self.population.rows[[i, j]]
        as_keys = (mean * g[:, row] + mean_2 * h[:, column]).sum(axis=1)
        shared = (h * g).sum(axis=2) @ self.population.weights
        return np.asarray((mean * mean_2).sum(axis=1) + as_keys + (self.n - 2) * shared)


MOST_QUERIES = 1024


def population_mean_error(
    scores: Array,
    values: Array,
    n: NDArray[np.int64],
    weights: Array | None = None,
    picks: int = 128,
) -> MeanError:
    """E|m_n - m|^2 for n tokens drawn from N with replacement.

    Parameters
    ----------
    scores : (N, N) array
        Score of each query token (row) on each key token (column).
    values : (N, d_v) array
    n : increasing array of int
    weights : (N,) array, optional
        Probability of each token; uniform by default.
    """
    size = len(values)
    weights = np.full(size, 1 / size) if weights is None else weights
    population = Population.of(scores, values, weights)
    responses = Responses.of(population, n)
    share = population.share
    left, right = np.triu_indices(len(share))
    precision = PAIRS if len(left) <= picks else SAMPLED

    def beyond(index: int) -> Array:
        i, j = int(left[index]), int(right[index])
        return population.pair(i, j, n, precision) - responses.pair(i, j)

    weight = np.where(left == right, 1, 2) * share[left] * share[right]
    rest, error = sampled_mean(beyond, _beyond_first_order(responses)[left, right], weight, picks)
    own = responses.squares @ share, np.zeros(len(n))
    return MeanError.of_parts(n, own, (responses.average() + rest, error))


def _beyond_first_order(responses: Responses) -> Array:
    """How large the higher orders of a pair may be, (R, R), averaged over n in its own units.

    A query's own higher orders are known: what its variance has over the first one. Two queries
    share them in proportion to the square of the correlation of their weights against n - 1
    average keys. Two that see each other move together by more than the sum of what each does to
    the other.
    """
    population = responses.population
    total = np.zeros((len(population.rows),) * 2)
    ratio = population.attention / np.maximum(population.weights, 1e-300)
    spread = responses.squares - (responses.means**2).sum(axis=2)
    for k, count in enumerate(responses.n):
        share = ratio / (ratio + count - 1)
        common = (share * population.weights) @ share.T
        size = np.sqrt(np.diag(common))
        higher = np.maximum(spread[k] - (count - 2) * responses.energy[k], 0.0)
        moved = np.sqrt(responses.squares[k])
        seen = share[:, population.rows]
        for part in (
            np.sqrt(np.outer(higher, higher)) * (common / np.outer(size, size)) ** 2,
            seen * seen.T * np.outer(moved, moved),
        ):
            total += part / max(float(part.mean()), 1e-300)
    return total
