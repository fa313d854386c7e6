"""What two queries gain by being keys of each other: the first-order part, and its average.

A query that attends to the other query's own token is rare and moves the product of their
outputs a lot. To first order the key y moves query z by its softmax weight against n - 1 typical
keys; that is taken off each pair and its average, which a stratified rule knows, is put back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import expit, ndtri

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.covariance.output_moments import OutputMoments
from attnlimit.theory.pairs.query_rule import QueryRule
from attnlimit.tokens.gaussian import normal_rule

_KEYS = (256, 2048)  # fewest and most
_NUMBERS = 16_384  # keys times dimensions: own keys matter less in high dimensions
_QUERIES = 128
_BLOCK = 32


@dataclass(frozen=True, eq=False)
class OwnKeyControl:
    """First-order effect of the own keys on a pair, for each n."""

    white: WhitenedHead
    n: NDArray[np.int64]
    outputs: tuple[OutputMoments, ...]
    participation: CubicSpline  # of all n, in the deviation of a query's scores

    @staticmethod
    def of(white: WhitenedHead, n: NDArray[np.int64], largest_sigma: float) -> OwnKeyControl:
        """The control for queries whose score deviation is up to `largest_sigma`."""
        outputs = OutputMoments.at(n, largest_sigma, white.offset)
        knots = outputs[0].participation.x
        by_n = np.stack([output.participation(knots) for output in outputs], axis=1)
        return OwnKeyControl(white, n, outputs, CubicSpline(knots, by_n))

    def pair(self, z1: Array, z2: Array) -> Array:
        """The effect on E[(Gamma_n(z1) - m).(Gamma_n(z2) - m)], for each n."""
        keys = np.stack([z1, z2])
        tilts = self.white.tilts(keys)
        vectors = np.concatenate([keys, tilts, self.white.offset[None]])
        inner = vectors @ self.white.metric @ vectors.T
        square = (tilts**2).sum(axis=1)
        knots = self.participation.x
        kept = 1 - self.participation(np.clip(np.sqrt(square), knots[0], knots[-1]))  # (2, len n)
        found = np.zeros(len(self.n))
        for here, there in ((0, 1), (1, 0)):  # the key of one query, seen by the other
            share = typical_share(tilts[there] @ keys[here], square[there], self.n.astype(float))
            # <key - kept[there] tilt there, kept[here] tilt here - offset>
            along = inner[here] - kept[there][:, None] * inner[2 + there]
            found += share * (kept[here] * along[:, 2 + here] - along[:, 4])
        return found

    def average(self) -> tuple[Array, Array]:
        """The average of `pair` over independent queries, for each n, and its standard error."""
        dim = len(self.white.B)
        rule = QueryRule.of(self.white, _QUERIES)
        half = normal_rule(dim, int(np.clip(_NUMBERS // dim, *_KEYS)) // 2, 3)
        keys = np.concatenate([half, -half])
        found = np.empty((len(self.n), len(keys)))
        for start in range(0, len(keys), _BLOCK):
            y = keys[start : start + _BLOCK]
            tilts = rule.tilts_for(y)
            score, square = (tilts @ y[:, :, None])[..., 0], (tilts**2).sum(axis=-1)
            for k, (n, output) in enumerate(zip(self.n, self.outputs, strict=True)):
                own = (output.mean(self.white.tilts(y)) - self.white.offset) @ self.white.metric
                kept = 1 - output.participation_at(np.sqrt(square))
                gap = (y * own).sum(axis=1)[:, None] - kept * (tilts @ own[:, :, None])[..., 0]
                moved = rule.share * typical_share(score, square, float(n)) * gap
                found[k, start : start + _BLOCK] = 2 * moved.sum(axis=1)
        # Keys come in antithetic pairs: only their averages are independent.
        both = (found[:, : len(half)] + found[:, len(half) :]) / 2
        return both.mean(axis=1), both.std(axis=1) / np.sqrt(len(half))


def typical_share(score: Array, square: Array, n: Array | float) -> Array:
    """Softmax weight of a key of this score against n - 1 typical ones.

    Their sum is e^{square/2} each, or where that is never reached, frozen, its largest term.
    """
    top = -ndtri(0.7 / n)  # about the median height of the largest of n normals
    frozen = np.sqrt(square) * top + 0.7
    others = np.where(square < top**2, square / 2 + np.log(n - 1), frozen)
    return np.asarray(expit(score - others))
