"""The error of the mean output over n of finitely many tokens: the two-query law by sums.

n tokens are drawn from a population of N with known scores and values (the tokens of a document
and one head), with replacement or without; each drawn token is a query and a key. Exact for each
pair of queries. All of the average over pairs that is first order in the response to a token is
summed; the rest is drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Precision
from attnlimit.theory.pairs.error import MeanError, combine
from attnlimit.theory.pairs.finite.distinct import DistinctPopulation
from attnlimit.theory.pairs.finite.response import Responses
from attnlimit.theory.pairs.finite.sample import sampled_mean
from attnlimit.theory.pairs.finite.tokens import Population

_QUERIES = 1024
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
    population = Population.of(scores, values, weights, _QUERIES)
    responses = Responses.of(population, n)
    pair, pair_error = _pair_average(responses, picks)
    own = responses.squares @ population.share
    return combine(n, own, np.zeros(len(n)), pair, pair_error)


def distinct_mean_error(
    scores: Array, values: Array, n: NDArray[np.int64], picks: int = 32
) -> MeanError:
    """E|m_n - m|^2 for n different tokens of N; arguments as for `population_mean_error`.

    A pair costs about a hundred times what it does with replacement, so that fewer are drawn.
    """
    size = len(values)
    random = n[n < size]  # all of them give the mean itself
    mse, error, own = np.zeros((3, len(n)))
    if len(random):
        weights = np.full(size, 1 / size)
        population = DistinctPopulation.of(scores, values, weights, _QUERIES)
        responses = Responses.of(population, random)
        single = responses.squares @ population.share
        pair, pair_error = _pair_average(responses, picks)
        found = combine(random, single, np.zeros(len(random)), pair, pair_error)
        at = n < size
        mse[at], error[at], own[at] = found.mse, found.numerical_error, found.own_share
    return MeanError(n, mse, error, own, np.zeros(len(n)))


def _pair_average(responses: Responses, picks: int) -> tuple[Array, Array]:
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
