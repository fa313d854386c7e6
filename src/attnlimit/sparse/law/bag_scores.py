"""Scores of a whole bag against the true signal, drawn at any length without drawing every token.

The largest scores are drawn one by one in descending order, by quasi-random points; the many below
them enter a softmax or a likelihood ratio only through sums, which are Gaussian with the exact
moments of a truncated normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from scipy.special import log_ndtr

from attnlimit.checks import Array
from attnlimit.sparse.law.features import SEED, bag_uniforms, ordered_scores

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
    explicit = min(noise_tokens, EXPLICIT)
    u = bag_uniforms(signals + explicit, log2_points, (SEED, replicate))
    weight, normals, hit, noise = ordered_scores(u, signals, noise_tokens)
    return BagScores(weight / weight.sum(), noise, hit, noise_tokens - explicit, normals)


def log_truncated_mgf(tilt: float, level: Array) -> Array:
    """log E[e^{tilt x} | x < level] for a standard normal x."""
    return 0.5 * tilt**2 + log_ndtr(level - tilt) - log_ndtr(level)
