"""Error of the mean output over n of finitely many tokens: the two-query law by sums.

n tokens are drawn from a population of N with known scores and values (the tokens of a document
and one head), with replacement or without; each drawn token is a query and a key. Exact for each
pair of queries. All of the average over pairs that is first order in the response to a token is
summed; the rest is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import PAIRS, Precision, Sweep, alpha_grid
from attnlimit.theory.one_query.start import late_grid
from attnlimit.theory.two_query.average import MeanError, combine, sampled_mean
from attnlimit.theory.two_query.gaussian import normal_nodes
from attnlimit.theory.two_query.law import OneQuery, OwnKeys, pair_moment, tabulate_pair


@dataclass(frozen=True, eq=False)
class Population:
    """Finitely many tokens: all of them keys, and some as queries that stand for all.

    n of them are drawn with replacement.
    """

    repeats: ClassVar[bool] = True  # whether one token can be drawn twice

    rows: NDArray[np.int64]  # (R,): which tokens are queries
    share: Array  # (R,): what each stands for, of sum one
    scores: Array  # (R, N)
    attention: Array  # (R, N)
    outputs: Array  # (R, d_v): the queries' limits
    values: Array  # (N, d_v)
    weights: Array  # (N,)

    @classmethod
    def of(cls, scores: Array, values: Array, weights: Array, most: int) -> Self:
        """Tokens with scores (N, N), at `most` so many of them as queries."""
        rows = query_rows(len(values), most)
        with np.errstate(divide="ignore"):
            attention = softmax(scores[rows] + np.log(weights), axis=1)
        share = weights[rows] / weights[rows].sum()
        outputs = attention @ values
        return cls(rows, share, scores[rows], attention, outputs, values, weights)

    @cached_property
    def mean(self) -> Array:
        """The mean limit, (d_v,)."""
        return self.share @ self.outputs

    def key_share(self, n: int) -> Array:
        """Softmax weight of each key against n - 1 average ones: a / (a + n - 1), (R, N).

        With a = e^{s_ik} / E e^{s_i}: a key k known to be there moves the output of query i by
        that much of V y_k - Gamma_i, to first order.
        """
        ratio = self.attention / np.maximum(self.weights, 1e-300)
        return np.asarray(ratio / (ratio + n - 1))

    def own(self, query: int, keys: NDArray[np.int64]) -> OwnKeys:
        """Keys that are there for certain, as a query sees them."""
        return OwnKeys(self.scores[query, keys], self.values[keys] - self.outputs[query])

    def sharing(self, n: NDArray[np.int64]) -> Array:
        """By what the average product of two responses makes a covariance: keys to share."""
        return n.astype(np.float64) - 2

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
        found = gone.T @ vector + (none @ (sweep.w * gone))[:, :, None] * centred
        mean = np.tensordot(found, self.weights, axes=(1, 0))
        limit = self.outputs[i] - self.mean
        return mean + limit, self.squared(i, self.rows[[i]], n), found - mean[:, None]

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
        table = tabulate_pair(scores, self.weights, centred, (first, second))
        limits = self.outputs[[i, j]] - self.mean
        joint = pair_moment(table, own, n) + limits[0] @ limits[1]
        fine = (first, second) if precision == PAIRS else (None, None)
        for here, keys_here, alpha, other in zip((i, j), own, fine, limits[::-1], strict=True):
            joint += self._one_query(here, keys_here, n, alpha).mean() @ other
        return joint

    def squared(self, i: int, keys: NDArray[np.int64], n: NDArray[np.int64]) -> Array:
        """E|Gamma_n(x_i) - m|^2 with these tokens among the n keys, for each n."""
        alone = self._one_query(i, self.own(i, keys), n)
        energy = ((self.values - self.outputs[i]) ** 2).sum(axis=1)
        limit = self.outputs[i] - self.mean
        return np.asarray(alone.square(energy) + 2 * alone.mean() @ limit + limit @ limit)

    def _one_query(
        self, query: int, own: OwnKeys, n: NDArray[np.int64], alpha: Array | None = None
    ) -> OneQuery:
        centred = self.values - self.outputs[query]
        return OneQuery.of(self.scores[query], self.weights, centred, own, n, alpha)


def query_rows(size: int, most: int) -> NDArray[np.int64]:
    """Which tokens stand for all as queries: all of them, or a fixed shuffle's first ones."""
    return np.sort(np.random.default_rng(0).permutation(size)[:most])


@dataclass(frozen=True, eq=False)
class Responses:
    """The response of every query, in sums that need no array of queries by keys by values.

    `moved` is the average response to each token, and `itself` a query's response to its own.
    """

    n: NDArray[np.int64]
    population: Population
    means: Array  # (len n, R, c): E Gamma_n(x_i) - m, the token itself among the keys
    squares: Array  # (len n, R): E|Gamma_n(x_i) - m|^2
    twice: Array  # (len n, R): the same where the token is among the keys twice, if it can be
    moved: Array  # (len n, N, c)
    itself: Array  # (len n, R, c)
    energy: Array  # (len n, R): sum over keys of their probability times |h_i|^2

    @staticmethod
    def of(population: Population, n: NDArray[np.int64]) -> Responses:
        """Go through the queries once."""
        rows, share = population.rows, population.share
        shape = len(n), len(rows)
        size = population.values.shape[1]
        means, itself = np.empty((*shape, size)), np.empty((*shape, size))
        squares, twice, energy = (np.zeros(shape) for _ in range(3))
        moved = np.zeros((len(n), *population.values.shape))
        for i, row in enumerate(rows):
            means[:, i], squares[:, i], h = population.response(i, n)
            if population.repeats:
                twice[:, i] = population.squared(i, rows[[i, i]], n)
            moved += share[i] * h
            itself[:, i] = h[:, row]
            energy[:, i] = (h**2).sum(axis=2) @ population.weights
        return Responses(n, population, means, squares, twice, moved, itself, energy)

    @property
    def sharing(self) -> Array:
        """What the average product of two responses counts for, for each n."""
        return self.population.sharing(self.n)

    def spread(self) -> Array:
        """Variance of each query's output, (len n, R)."""
        return self.squares - (self.means**2).sum(axis=2)

    def average(self) -> Array:
        """Average of `pair` over two independent queries, the same one twice included, by n."""
        share, rows = self.population.share, self.population.rows
        centre = share @ self.means
        as_keys = (self.means * self.moved[:, rows]).sum(axis=2) @ share
        shared = (self.moved**2).sum(axis=2) @ self.population.weights
        return np.asarray((centre**2).sum(axis=1) + 2 * as_keys + self.sharing * shared)

    def with_itself(self) -> Array:
        """`pair` of each query with itself, (len n, R)."""
        own = (self.means * (self.means + 2 * self.itself)).sum(axis=2)
        return np.asarray(own + self.sharing[:, None] * self.energy)

    def pair(self, i: int, j: int) -> Array:
        """E[(Gamma_n(x_i) - m).(Gamma_n(x_j) - m)] to first order in the response, for each n."""
        (one, _, h), (other, _, g) = (self.population.response(k, self.n) for k in (i, j))
        row, column = self.population.rows[[i, j]]
        as_keys = (one * g[:, row] + other * h[:, column]).sum(axis=1)
        shared = (h * g).sum(axis=2) @ self.population.weights
        return np.asarray((one * other).sum(axis=1) + as_keys + self.sharing * shared)


MOST_QUERIES = 1024
SAMPLED = Precision(0.7, 1e-7, 14.0, 5.0, 9.0, 1.0)
"""For pairs that are drawn, not summed: errors below 1e-4, far below those of the draws."""


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
    population = Population.of(scores, values, weights, MOST_QUERIES)
    responses = Responses.of(population, n)
    pair, pair_error = pair_average(responses, picks)
    own = responses.squares @ population.share
    return combine(n, own, np.zeros(len(n)), pair, pair_error)


def pair_average(responses: Responses, picks: int) -> tuple[Array, Array]:
    """Average over two tokens, one drawn twice included if it can be, and its error.

    The first-order response and tokens paired with themselves are full sums. What is left is how
    two outputs vary together beyond first order, and is averaged over drawn pairs.
    """
    population, n = responses.population, responses.n
    share = population.share
    chance = share**2
    apart = 1.0 if population.repeats else 1 - float(chance.sum())
    known = responses.average() + (responses.twice - responses.with_itself()) @ chance
    left, right = np.triu_indices(len(share), 1)
    precision = PAIRS if len(left) <= picks else SAMPLED

    def beyond(index: int) -> Array:
        i, j = int(left[index]), int(right[index])
        return population.pair(i, j, n, precision) - responses.pair(i, j)

    guess = _beyond_first_order(responses)[left, right]
    rest, error = sampled_mean(beyond, guess, 2 * share[left] * share[right] / apart, picks)
    return known / apart + rest, error


def _beyond_first_order(responses: Responses) -> Array:
    """How large the higher orders of a pair may be, (R, R), averaged over n in its own units.

    A query's own higher orders are known: what its variance has over the first one. Two queries
    share them in proportion to the square of their correlation at first order, here from the
    softmax weight of each key against n - 1 average ones. Two that see each other move together
    by more than the sum of what each does to the other.
    """
    population = responses.population
    centred, outputs = population.values - population.mean, population.outputs - population.mean
    lengths, across = (centred**2).sum(axis=1), outputs @ centred.T
    total = np.zeros((len(outputs),) * 2)
    for k, count in enumerate(responses.n):
        share = population.key_share(int(count))
        weighted = share * population.weights
        cross = (weighted * across) @ share.T
        common = (weighted * lengths) @ share.T - cross - cross.T
        common += (outputs @ outputs.T) * (weighted @ share.T)
        # A query that sees but one key has nothing to share.
        size = np.sqrt(np.maximum(np.diag(common), 1e-12 * float(np.diag(common).max()) + 1e-200))
        beyond = responses.spread()[k] - responses.sharing[k] * responses.energy[k]
        higher = np.sqrt(np.maximum(beyond, 0.0))
        correlation = np.clip(common / np.outer(size, size), -1, 1)
        guess = np.outer(higher, higher) * correlation**2
        moved = np.sqrt(responses.squares[k])
        seen = share[:, population.rows]
        mutual = seen * seen.T * np.outer(moved, moved)
        for part in (guess, mutual):
            total += part / max(float(part.mean()), 1e-300)
    return total / len(responses.n)


_REACH, _STEP = 5.2, 0.4


def integrated_variance(horizon: float, n: NDArray[np.int64]) -> Array:
    """Variance of the mean output over the law of the queries, for each n."""
    place = np.arange(_STEP / 2, _REACH, _STEP)  # queries of one sign; the others mirror them
    share = np.exp(-(place**2) / 2)
    share /= share.sum()
    y, weight = normal_nodes(horizon * float(place[-1]))
    nobody = OwnKeys(np.empty(0), np.empty((0, 1)))
    grids = [late_grid(horizon * z * y, weight, n, PAIRS) for z in place]
    total = np.zeros(len(n))
    for i, z in enumerate(place):
        for j, other in enumerate(place[: i + 1]):
            both = share[i] * share[j] * (1 if i == j else 2)
            for sign in (1, -1):
                tilts = horizon * z, sign * horizon * other  # each the limit of its query
                scores = tilts[0] * y, tilts[1] * y
                values = (y - tilts[0])[:, None], (y - tilts[1])[:, None]
                table = tabulate_pair(scores, weight, values, (grids[i], grids[j]))
                total += both / 2 * pair_moment(table, (nobody, nobody), n)
    return total
