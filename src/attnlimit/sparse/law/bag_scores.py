"""Scores of a whole bag against the true signal, drawn at any length without drawing every token.

The largest scores are drawn one by one in descending order, by quasi-random points; the many below
them enter a softmax or a likelihood ratio only through sums, which are Gaussian with the exact
moments of a truncated normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtri
from scipy.stats import qmc

from attnlimit.checks import Array
from attnlimit.sparse.law.features import SEED, descending_normals, stretch_tails

EXPLICIT = 64
"""Noise tokens drawn one by one; bags up to this length are exact."""


@dataclass(frozen=True, eq=False)
class BagScores:
    """Weighted draws of the scores of one class: `noise` is descending, signals are unshifted."""

    weight: Array
    noise: Array
    signals: Array
    hidden: int
    """Noise tokens below the explicit ones."""
    normals: Array
    """A standard normal for the sums over the hidden tokens."""

    @property
    def level(self) -> Array:
        """The smallest explicit noise score: every hidden one lies below it."""
        return self.noise[:, -1]


@lru_cache(maxsize=8)
def bag_scores(noise_tokens: int, signals: int, log2_points: int, replicate: int) -> BagScores:
    """Draw 2**log2_points bags with `noise_tokens` noise tokens and `signals` signal tokens."""
    explicit = noise_tokens if noise_tokens <= EXPLICIT else EXPLICIT
    rng = np.random.default_rng([SEED, replicate])
    u = qmc.Sobol(1 + signals + explicit, scramble=True, rng=rng).random(2**log2_points)
    u = np.clip(u, 1e-12, 1 - 1e-12)
    normals = ndtri(u[:, 0])
    weight = np.ones(len(u))
    for first in ([1] if signals else []) + ([1 + signals] if explicit else []):
        u[:, first], slope = stretch_tails(u[:, first])
        weight *= slope
    u = np.clip(u, 1e-15, 1 - 1e-15)
    noise = _top(u[:, 1 + signals :], noise_tokens) if explicit else np.empty((len(u), 0))
    hit = descending_normals(u[:, 1 : 1 + signals]) if signals else np.empty((len(u), 0))
    return BagScores(weight / weight.sum(), noise, hit, noise_tokens - explicit, normals)


def _top(u: Array, total: int) -> Array:
    """The largest `u.shape[1]` of `total` standard normals, in descending order."""
    if total == u.shape[1]:
        return descending_normals(u)
    log_rank = np.cumsum(np.log(u) / np.arange(total, total - u.shape[1], -1), axis=1)
    return -ndtri(np.clip(-np.expm1(log_rank), 1e-300, 1 - 1e-16))


def log_truncated_mgf(tilt: float, level: Array) -> Array:
    """log E[e^{tilt x} | x < level] for a standard normal x."""
    return 0.5 * tilt**2 + log_ndtr(level - tilt) - log_ndtr(level)
