"""The exact error of the mean output at finite n, E|m_n - m|^2, from the law of two queries.

    E|m_n - m|^2 = (1/n) E|Gamma_n(x) - m|^2 + (1 - 1/n) E[(Gamma_n(x) - m).(Gamma_n(x') - m)],

with every query one of the n keys. Exact given the queries; the average over queries is a
quasi-random rule whose error is reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.heads import Head
from attnlimit.theory.gaussian_pairs import gaussian_own_moment, gaussian_pair_moment
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.population_pairs import (
    MeanError,
    average_errors,
    combine,
    population_mean_error,
)
from attnlimit.theory.query_pairs import PairPool, average_over_pairs
from attnlimit.tokens import Empirical, Gaussian, Tokens
from attnlimit.tokens.gaussian import normal_rule

POOL = 8192
_SMALLEST_POOL = 512
_POOL_NUMBERS = 2**20  # memory: the pool of pairs shrinks in high dimensions
PICKS = 64
_OWN_PICKS = 64
_QUASI_KEYS = 768


def mean_error(head: Head, tokens: Tokens, n: NDArray[np.int64], picks: int = PICKS) -> MeanError:
    """Error of the mean output by the two-query law."""
    if isinstance(tokens, Gaussian):
        return _gaussian_mean_error(WhitenedHead.of(head, tokens), n, picks)
    return _population_mean_error(head, tokens, n, picks)


def _gaussian_mean_error(white: WhitenedHead, n: NDArray[np.int64], picks: int) -> MeanError:
    dim = len(white.B)
    pool_size = int(np.clip(2 ** int(np.log2(_POOL_NUMBERS / dim)), _SMALLEST_POOL, POOL))
    normals = normal_rule(2 * dim, pool_size, 0)
    first, second = normals[:, :dim], normals[:, dim:]
    b1, b2 = white.tilts(first), white.tilts(second)
    sigma1, sigma2 = np.linalg.norm(b1, axis=1), np.linalg.norm(b2, axis=1)
    typical = max(float(np.sqrt(np.mean(sigma1**2))), 1e-300)
    # Two queries share keys in proportion to e^{<b1, b2>}, as far as n keys can reach.
    reach = np.sqrt(2 * np.log(float(np.exp(np.log(n.astype(float)).mean()))))
    shrink = np.minimum(1, reach / np.maximum(sigma1, 1e-300)) * np.minimum(
        1, reach / np.maximum(sigma2, 1e-300)
    )
    pool = PairPool(
        importance=np.abs((b1 * b2).sum(axis=1)) * shrink,
        features=np.stack(
            [(sigma1 + sigma2) / (2 * typical) - 1, np.abs(sigma1 - sigma2) / typical], axis=1
        ),
    )

    def both_signs(index: int) -> Array:
        z1, z2 = first[index], second[index]
        plus = gaussian_pair_moment(white, z1, z2, n)
        return (plus + gaussian_pair_moment(white, z1, -z2, n)) / 2

    pair, pair_error = average_over_pairs(pool, both_signs, picks)
    own_pool = PairPool(importance=sigma1, features=np.zeros((pool_size, 0)))
    own, own_error = average_over_pairs(
        own_pool, lambda i: gaussian_own_moment(white, first[i], n), _OWN_PICKS
    )
    limit_square = float(np.trace(white.tilt_cov @ white.metric))
    return combine(n, own + limit_square, own_error, pair, pair_error)


def _population_mean_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64], picks: int
) -> MeanError:
    """The same for finitely many tokens, exactly, or for quasi-random stand-ins of a measure."""
    found = []
    for points, weights in stand_ins(tokens):
        scores = head.tilts(points) @ points.T
        found.append(population_mean_error(scores, points @ head.V.T, n, weights, picks))
    return average_errors(found)


def stand_ins(tokens: Tokens) -> list[tuple[Array, Array]]:
    """Finite populations as (points, weights): the tokens, or two quasi-random sets of them."""
    if isinstance(tokens, Empirical):
        return [(tokens.locations, tokens.weights)]
    uniform = np.full(_QUASI_KEYS, 1 / _QUASI_KEYS)
    return [(tokens.points(_QUASI_KEYS, seed), uniform) for seed in (0, 1)]
