"""The error of the mean output over finitely many tokens, resampled: the two-query law by sums.

n tokens are drawn from a population of N with known scores and values (the tokens of a document
and one head); each drawn token is a query and a key. Exact for each pair of queries; pairs are
picked along their overlap, with a finite-n mean-field projection as the control.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, alpha_grid
from attnlimit.theory.pairs.average import controlled_mean, pick
from attnlimit.theory.pairs.law import OwnKeys, own_key_moments, pair_moment, tabulate_pair

_QUERIES = 1024


@dataclass(frozen=True, eq=False)
class MeanError:
    """E|m_n - m|^2 for each n, and the numerical error of the average over queries."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array
    own_share: Array  # the part of it that single queries carry, (1/n) E|Gamma_n - m|^2


def combine(
    n: NDArray[np.int64], own: Array, own_error: Array, pair: Array, pair_error: Array
) -> MeanError:
    """(1/n) own + (1 - 1/n) pair, with its error."""
    error = np.hypot(own_error / n, (1 - 1 / n) * pair_error)
    return MeanError(n, own / n + (1 - 1 / n) * pair, error, own / n)


def average_errors(found: list[MeanError]) -> MeanError:
    """Average over stand-ins of one measure; how they differ counts as numerical error."""
    mse = np.array([f.mse for f in found])
    inner = np.linalg.norm([f.numerical_error for f in found], axis=0) / len(found)
    own_share = np.mean([f.own_share for f in found], axis=0)
    return MeanError(found[0].n, mse.mean(axis=0), np.hypot(inner, mse.std(axis=0)), own_share)


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
    def of(scores: Array, values: Array, weights: Array, most: int) -> Population:
        """Tokens with scores (N, N), at `most` so many of them as queries."""
        rows = query_rows(len(values), most)
        with np.errstate(divide="ignore"):
            attention = softmax(scores[rows] + np.log(weights), axis=1)
        share = weights[rows] / weights[rows].sum()
        outputs = attention @ values
        return Population(rows, share, scores[rows], attention, outputs, values, weights)

    @property
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

    def pair(self, i: int, j: int, n: NDArray[np.int64]) -> Array:
        """E[(Gamma_n(x_i) - m).(Gamma_n(x_j) - m)], both tokens among the n keys.

        The two means stand out of the average over pairs: see `_pair_average`.
        """
        keys = self.rows[[i, j]]
        own = (self.own(i, keys), self.own(j, keys))
        scores = (self.scores[i], self.scores[j])
        first, second = (
            alpha_grid(s, self.weights, n, PAIRS, k.score) for s, k in zip(scores, own, strict=True)
        )
        centred = (self.values - self.outputs[i], self.values - self.outputs[j])
        table = tabulate_pair(scores, self.weights, centred, (first, second))
        limits = self.outputs[[i, j]] - self.mean
        joint = pair_moment(table, own, n) + limits[0] @ limits[1]
        for here, other, keys_here in ((i, 1, own[0]), (j, 0, own[1])):
            joint += self._moments(here, keys_here, n)[0] @ limits[other]
        return joint

    def alone(self, i: int, n: NDArray[np.int64]) -> tuple[Array, Array]:
        """E Gamma_n(x_i) - m and E|Gamma_n(x_i) - m|^2, the token itself among the n keys."""
        mean, square = self._moments(i, self.own(i, self.rows[[i]]), n)
        limit = self.outputs[i] - self.mean
        return mean + limit, square + 2 * mean @ limit + limit @ limit

    def _moments(self, query: int, own: OwnKeys, n: NDArray[np.int64]) -> tuple[Array, Array]:
        centred = self.values - self.outputs[query]
        energy = (centred**2).sum(axis=1)
        return own_key_moments(self.scores[query], self.weights, centred, energy, own, n)


def query_rows(size: int, most: int) -> NDArray[np.int64]:
    """Which tokens stand for all as queries: all of them, or a fixed shuffle's first ones."""
    return np.sort(np.random.default_rng(0).permutation(size)[:most])


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
    population = Population.of(scores, values, weights, _QUERIES)
    alone = [population.alone(i, n) for i in range(len(population.rows))]
    means = np.array([a[0] for a in alone])  # (R, len(n), d_v)
    own = population.share @ np.array([a[1] for a in alone])
    pair, pair_error = _pair_average(population, means, n, picks)
    return combine(n, own, np.zeros(len(n)), pair, pair_error)


def _pair_average(
    population: Population, means: Array, n: NDArray[np.int64], picks: int
) -> tuple[Array, Array]:
    """Average of `pair` over two independent tokens, a token paired with itself included.

    The product of the two queries' means averages to the square of their average, exactly; only
    what is left, how the two outputs vary together, is averaged over picked pairs.
    """
    query_weights = population.share
    attention = population.attention
    overlap = (attention / np.maximum(population.weights, 1e-300)) @ attention.T
    left, right = np.triu_indices(len(attention), 1)
    chosen, share = pick(overlap[left, right], picks)
    share = share * query_weights[left[chosen]] * query_weights[right[chosen]]
    same, same_weight = pick(np.diag(overlap), max(picks // 4, 4))
    same_weight = same_weight * query_weights[same] ** 2
    fields = [
        _MeanField(int(c), population.key_share(int(c)), population, means[:, k])
        for k, c in enumerate(n)
    ]

    def together(i: int, j: int) -> tuple[Array, list[float]]:
        product = (means[i] * means[j]).sum(axis=-1)
        return population.pair(i, j, n) - product, [field.pair(i, j) for field in fields]

    same_share = float((query_weights**2).sum())
    everything = np.array([field.average() for field in fields])
    on_itself = np.array([query_weights**2 @ field.with_itself() for field in fields])
    mean = (np.tensordot(query_weights, means, axes=1) ** 2).sum(axis=-1)
    error = np.zeros(len(n))
    apart = [(int(left[k]), int(right[k])) for k in chosen]
    strata = [(apart, share, everything - on_itself, 1 - same_share)]
    strata.append(([(int(i), int(i)) for i in same], same_weight, on_itself, same_share))
    for pairs, weight, control_sum, portion in strata:
        both = zip(*(together(i, j) for i, j in pairs), strict=True)
        found, control = (np.array(part) for part in both)
        weight = weight / weight.sum()
        here, here_error = controlled_mean(found, control, control_sum / portion, weight)
        mean = mean + portion * here
        error = np.hypot(error, portion * here_error)
    return mean, error


@dataclass(frozen=True, eq=False)
class _MeanField:
    """First-order stand-in for how two outputs vary together, whose average is a plain sum.

    `pair` is the covariance that the response to a key's share gives.
    """

    n: int
    share: Array  # (R, N)
    population: Population
    means: Array  # (R, d_v): E Gamma_n(x_i) - m

    def pair(self, i: int, j: int) -> float:
        all_keys, rows = self.population, self.population.rows
        one, other = (
            self.share[query][:, None] * (all_keys.values - all_keys.outputs[query])
            for query in (i, j)
        )
        as_keys = one[rows[j]] @ self.means[j] + other[rows[i]] @ self.means[i]
        return float(self.n * (all_keys.weights @ (one * other).sum(axis=1)) + as_keys)

    def average(self) -> float:
        """Average of `pair` over two independent queries."""
        query_weights = self.population.share
        weighted = query_weights[:, None] * self.share
        pulled = weighted.sum(axis=0)[:, None] * self.population.values
        pulled -= weighted.T @ self.population.outputs
        as_keys = (pulled[self.population.rows] * self.means).sum(axis=1)
        shared = self.population.weights @ (pulled**2).sum(axis=1)
        return float(self.n * shared + 2 * query_weights @ as_keys)

    def with_itself(self) -> Array:
        """`pair` of each query with itself."""
        values, outputs = self.population.values, self.population.outputs
        squared = self.share**2 * self.population.weights
        spread = (
            squared @ (values**2).sum(axis=1)
            - 2 * ((squared @ values) * outputs).sum(axis=1)
            + squared.sum(axis=1) * (outputs**2).sum(axis=1)
        )
        rows = self.population.rows
        share = self.share[np.arange(len(rows)), rows]
        own = share[:, None] * (values[rows] - outputs)
        return self.n * spread + 2 * (own * self.means).sum(axis=1)
