"""The error of the outputs' covariance over n tokens drawn from finitely many, with replacement.

Cov_n = T - rr', with T the second moment of outputs about a centre that is a sum over the tokens,
the exact projection of m_n, and r = m_n less it. T's error is a law of two queries, exact. What r
does is fourth order and left as an estimate with an error of its size (docs/theory/moments.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS
from attnlimit.theory.pairs.finite.mean import SAMPLED, population_mean_error
from attnlimit.theory.pairs.finite.moving import MovingCentre
from attnlimit.theory.pairs.finite.sample import sampled_mean
from attnlimit.theory.pairs.finite.tokens import Population

_UNSEEN = 0.3
"""Share of the drawn part that counts as error: rare pairs carry much of it, and a draw that has
missed them does not know (docs/theory/moments.md, section 4)."""


@dataclass(frozen=True, eq=False)
class FiniteCovariance:
    """E|Cov_n - Cov|_F^2 for each n, and what it may be off by."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array
    rest: Array  # the part that is not exact


def finite_covariance_error(
    scores: Array, values: Array, n: NDArray[np.int64], picks: int = 96
) -> FiniteCovariance:
    """For tokens with scores (N, N) and values (N, d_v), all equally likely; n increasing."""
    size = len(values)
    population = Population.of(scores, values, np.full(size, 1 / size), size)
    mean = population_mean_error(scores, values, n)
    found = [_at(population, int(c), float(m), picks) for c, m in zip(n, mean.mse, strict=True)]
    mse, error, rest = np.array(found).T
    return FiniteCovariance(n, mse, error, rest)


def _at(
    population: Population, n: int, mean_error: float, picks: int
) -> tuple[float, float, float]:
    """The error at one n, what it may be off by, and its part that is an estimate."""
    size = len(population.rows)
    outputs = population.outputs - population.mean
    limit = outputs.T @ outputs / size
    means, h = _responses(population, n)
    parts = means / n + (1 - 1 / n) * h.mean(axis=0)
    parts -= (1 - 1 / n) * means.mean(axis=0) / n  # n of them have the mean of m_n - m
    moving = MovingCentre.of(population, parts, n)
    singles = [moving.single(i) for i in range(size)]
    fourth = np.mean([single[0] for single in singles])
    second = np.mean([single[1] for single in singles], axis=0)
    stand_ins, alike = _stand_ins(means, h, parts, n)
    twice = np.array([moving.single(i, copies=2)[0] for i in range(size)])  # a token drawn twice
    alone = np.diag(stand_ins)
    left, right = np.triu_indices(size, 1)
    precision = PAIRS if len(left) <= picks else SAMPLED

    def beyond(index: int) -> Array:
        i, j = int(left[index]), int(right[index])
        return np.array([moving.pair(i, j, precision) - stand_ins[i, j]])

    # A query's own higher orders are known; two share them by the square of their correlation.
    higher = np.sqrt(np.abs(twice - alone))
    guess = (np.outer(higher, higher) * alike**2)[left, right]
    drawn, noise = sampled_mean(beyond, guess, np.full(len(left), 2 / size**2), picks)
    known = float(stand_ins.mean() + drawn[0] + (twice - alone).mean() / size)
    value = float(fourth / n + (1 - 1 / n) * known + ((limit - 2 * second) * limit).sum())
    rest = _rest(parts, second - limit, mean_error, n)
    unseen = _UNSEEN * float(drawn[0]) if noise[0] > 0 else 0.0
    error = np.linalg.norm([(1 - 1 / n) * noise[0], (1 - 1 / n) * unseen, rest])
    return value + rest, float(error), rest


def _rest(parts: Array, bias: Array, mean_error: float, n: int) -> float:
    """-2 E r'(Cov_n - Cov) r - E|r|^4 for r normal, apart from Cov_n, and of the shape of a."""
    centre = n * parts.mean(axis=0)
    spread = n * np.atleast_2d(np.cov(parts.T, bias=True))
    left = max(mean_error - float(centre @ centre) - float(np.trace(spread)), 0.0)
    shape = left * spread / max(float(np.trace(spread)), 1e-300)
    return -2 * float(((bias - shape) * shape).sum()) - left**2 - 2 * float((shape**2).sum())


def _responses(population: Population, n: int) -> tuple[Array, Array]:
    """Means (N, c) and responses (N, N, c) of all queries at one n."""
    means, h = [], []
    for i in range(len(population.rows)):
        mean, _, response = population.response(i, np.array([n]))
        means.append(mean[0])
        h.append(response[0])
    return np.array(means), np.array(h)


def _stand_ins(means: Array, h: Array, parts: Array, n: int) -> tuple[Array, Array]:
    """E ((Gamma_i - m - a).(Gamma_j - m - a))^2 as if outputs were sums over keys, (N, N).

    And the correlation of two queries' responses.
    """
    keys, size, centre = n - 2, len(means), parts.mean(axis=0)
    h = h - (parts - centre)
    covs = np.einsum("ika,ikb->iab", h, h, optimize=True) / size
    flat = h.reshape(size, -1)
    shared = flat @ flat.T / size
    typical = covs.mean(axis=0)
    shape = float((typical**2).sum() / max(float(np.trace(typical)) ** 2, 1e-300))
    found = keys**2 * (shared**2 * (1 + shape) + covs.reshape(size, -1) @ covs.reshape(size, -1).T)
    about = means - parts - (n - 1) * centre
    for i in range(size):
        mine, theirs = about[i] + h[i], about + h[:, i]  # (N, c): given that j, or i, is a key
        along = (mine * theirs).sum(axis=1)
        once = np.einsum("ja,jab,jb->j", mine, covs, mine, optimize=True)
        once += np.einsum("ja,ab,jb->j", theirs, covs[i], theirs, optimize=True)
        across = (h @ mine[:, :, None])[..., 0] * (theirs @ h[i].T)
        once += 2 * across.mean(axis=1) + 2 * along * shared[i]
        found[i] += along**2 + keys * once
    lengths = np.sqrt(np.maximum(np.diag(shared), 1e-300))
    return np.asarray(found), shared / np.outer(lengths, lengths)
