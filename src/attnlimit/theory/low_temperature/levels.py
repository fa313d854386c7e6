"""Highest score level among n draws of finitely many kinds of token, ties averaged.

Softmax with an infinite scale averages the tokens that tie for the largest score. A level is a
set of tokens with one score: its probability, mean output and spread decide everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.tokens.score_law import resolved_panels

_TIE = 1e-12
_MAX_LEVELS = 2_000_000
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Levels:
    """Score levels from the highest down, outputs measured from the target."""

    score: Array  # (L,)
    probability: Array  # (L,)
    offset: Array  # (L, d_v)   mean output minus the target
    spread: Array  # (L,)       variance of the output within the level

    def winning(self, n: int) -> Array:
        """P(the best of n draws is at each level)."""
        none_above, share = self._from_above(n)
        return none_above * -np.expm1(n * np.log1p(-share))

    def _from_above(self, n: int) -> tuple[Array, Array]:
        """P(none of n draws is above each level), and the level's share of those not above."""
        above = np.minimum(np.append(0.0, np.cumsum(self.probability)[:-1]), 1 - 1e-16)
        share = np.minimum(self.probability / (1 - above), 1 - 1e-16)
        return np.exp(n * np.log1p(-above)), share

    def errors(self, n: int) -> tuple[Array, float, float]:
        """Bias, mean squared error and expected largest score of n draws."""
        win = self.winning(n)
        mse = float(win @ (self.offset**2).sum(axis=1))
        tied = np.flatnonzero((self.spread > 0) & (win > 1e-18))
        none_above, share = self._from_above(n)
        for start in range(0, len(tied), _CHUNK):
            level = tied[start : start + _CHUNK]
            weight = none_above[level] * self.spread[level]
            mse += float(weight @ _mean_inverse_count(n, share[level]))
        return win @ self.offset, mse, float(win @ self.score)


def _mean_inverse_count(n: int, share: Array) -> Array:
    """E[1/N; N >= 1] for N binomial(n, share): int_0^1 ((1 - p + pu)^n - (1-p)^n)/u du."""
    # Nodes of 1 - u: fine where u is near 1.
    gap, weight = resolved_panels(np.append(0.0, 0.5 ** np.arange(55.0, -1.0, -1.0)))
    missed = np.exp(n * np.log1p(-share))
    value = np.exp(n * np.log1p(-np.multiply.outer(share, gap))) - missed[:, None]
    return np.asarray(value @ (weight / (1 - gap)))


def population_levels(
    points: Array, weights: Array, t: Array, values: Array
) -> tuple[Levels, Array]:
    """Levels of a finite population, and the target: the mean of its best tokens."""
    scores = np.where(weights > 0, points @ t, -np.inf)
    order = np.argsort(-scores, kind="stable")[: np.count_nonzero(weights > 0)]
    raw = _merge(scores[order], weights[order], points[order] @ values.T, np.zeros(len(order)))
    target = raw.offset[0]
    return replace(raw, offset=raw.offset - target), target


def sign_levels(scale: float, t: Array, values: Array) -> tuple[Levels, Array]:
    """Levels of random signs: coordinates with one |t_i| are exchangeable, so count the flips."""
    size = np.abs(t)
    acting = size > _TIE * size.max()
    towards = scale * np.sign(t) * values  # (d_v, d): columns that a flip subtracts twice
    groups = _equal_sizes(size, acting)
    combinations = float(np.prod([len(g) + 1.0 for g in groups]))
    if combinations > _MAX_LEVELS:
        raise BadInput(
            f"random signs have {combinations:.3g} score levels at this query, more than "
            f"{_MAX_LEVELS}; use a query whose scores A x have fewer different coordinates."
        )
    target = towards[:, acting].sum(axis=1)
    shape = tuple(len(g) + 1 for g in groups)
    counts = np.stack(np.unravel_index(np.arange(int(combinations)), shape), axis=1) * 1.0
    sizes = np.array([len(g) for g in groups], dtype=np.float64)
    log_choices = gammaln(sizes + 1) - gammaln(counts + 1) - gammaln(sizes - counts + 1)
    probability = np.exp((log_choices - sizes * np.log(2)).sum(axis=1))
    score = scale * (size.sum() - 2 * counts @ np.array([size[g[0]] for g in groups]))
    share = counts / sizes
    sums = np.stack([towards[:, g].sum(axis=1) for g in groups])  # (G, d_v)
    own = np.array([(towards[:, g] ** 2).sum() for g in groups])
    # Positions of c flips among m: variance of the flipped columns' sum.
    factor = np.divide(
        share * (1 - share) * sizes, sizes - 1, out=np.zeros_like(share), where=sizes > 1
    )
    within = 4 * factor @ (own - (sums**2).sum(axis=1) / sizes)
    free = scale**2 * float((values[:, ~acting] ** 2).sum())
    order = np.argsort(-score, kind="stable")
    offset = -2 * share @ sums
    columns = (score, probability, offset, within + free)
    return _merge(*(column[order] for column in columns)), target


def _equal_sizes(size: Array, acting: Array) -> list[Array]:
    index = np.flatnonzero(acting)
    index = index[np.argsort(size[index], kind="stable")]
    cuts = np.flatnonzero(np.diff(size[index]) > _TIE * size.max()) + 1
    return list(np.split(index, cuts))


def _merge(score: Array, probability: Array, offset: Array, spread: Array) -> Levels:
    """Join levels whose scores are equal but for rounding."""
    scale = np.abs(score).max()
    starts = np.append(0, np.flatnonzero(-np.diff(score) > _TIE * scale) + 1)
    total = np.add.reduceat(probability, starts)
    mean = np.add.reduceat(probability[:, None] * offset, starts) / total[:, None]
    label = np.cumsum(np.isin(np.arange(len(score)), starts)) - 1
    around = spread + ((offset - mean[label]) ** 2).sum(axis=1)
    within = np.add.reduceat(probability * around, starts) / total
    rounding = 1e-24 * float((offset**2).sum(axis=1).max())
    return Levels(score[starts], total, mean, np.where(within > rounding, within, 0.0))
