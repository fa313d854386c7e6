"""Gaussian keys: sums over the plane of two tilts, and the effect of the queries' own keys.

A query that attends to the other query's own token is rare and moves the product of their outputs
a lot. To first order the key y moves query z by its softmax weight against n - 1 typical keys; that
is taken off each pair and its average, which a stratified rule gives, is put back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, PPoly
from scipy.special import expit, ndtri

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.one_query.gaussian import gaussian_law
from attnlimit.theory.one_query.quadrature import PAIRS, Sweep
from attnlimit.theory.two_query.law import Across, HeightNodes, PairGrid, Plane, PlaneSums
from attnlimit.tokens.gaussian import normal_rule

_SPLINE_STEP = 0.2
_NODE_STEP = 0.75  # of normal keys, and of their scores
_LEAST, _MOST = -8.5, 10.0  # normal keys


def normal_nodes(score_std: float) -> tuple[Array, Array]:
    """Trapezoid nodes for g ~ N(0,1) that resolve exp(-t e^{score_std g}) to about 1e-6."""
    step = _NODE_STEP / max(score_std, 1.0)
    g = np.arange(_LEAST, min(2 * score_std + 8.5, _MOST) + step, step)
    weight = np.exp(-(g**2) / 2)
    return g, weight / weight.sum()


@dataclass(frozen=True, eq=False)
class GaussianKeys:
    """Standard normal keys: a query's scores are |b| g, and its limit is its tilt b."""

    values: Array  # (d_v, d): maps whitened keys to outputs
    offset: Array  # (d,): mean limit, whitened
    step: float = PAIRS.step

    def limit_height(self, size: float) -> float:
        """The limit is the tilt itself."""
        return size

    def nodes(self, size: float, n: NDArray[np.int64]) -> HeightNodes:
        """Trapezoid nodes, whatever n."""
        g, weight = normal_nodes(size)
        return HeightNodes(size * g, weight, g, np.ones(len(g)))

    @property
    def across(self) -> Across:
        """Normal, whatever the scores."""
        return Across()

    def sums(
        self,
        plane: Plane,
        first: HeightNodes,
        alpha: PairGrid,
        n: NDArray[np.int64],
        degrees: tuple[int, ...],
    ) -> PlaneSums:
        """Sums over keys (y1, y2) in the plane: s = sigma1 y1, s' = sigma2 (r y1 + rho y2).

        Those over y2 depend on alpha' - sigma2 r y1 alone: few functions of one variable.
        """
        spread = plane.sizes[1] * plane.sine
        x = alpha[1] - plane.sizes[1] * plane.cosine * first.height[:, None]
        g, weight = normal_nodes(spread)
        grid = np.arange(x.min() - 1, x.max() + 1 + _SPLINE_STEP, _SPLINE_STEP)
        sweep = Sweep.over(spread * g, weight, grid)
        names = [(k, m) for k, degree in enumerate(degrees) for m in range(degree + 1)]
        powers = np.stack([g**m for m in range(max(degrees) + 1)], axis=1)
        moments = [sweep.moment(k, powers) for k in range(len(degrees) + 1)]
        height = [moments[k][:, m] for k, m in names]
        # w falls with x like e^{-x}, so that slopes are moments too.
        slope = [moments[k + 1][:, m] - k * moments[k][:, m] for k, m in names]
        # The first one is 1 - phi, which keeps its digits where phi is near one.
        height[0], slope[0] = sweep.missed, -slope[0]
        found = _spline(grid, np.stack(height, axis=1), np.stack(slope, axis=1))(x)
        sums = {name: np.ascontiguousarray(found[..., k]) for k, name in enumerate(names)}
        missed = sums[0, 0]
        return PlaneSums(first, missed, sums | {(0, 0): 1 - missed})


def _spline(grid: Array, height: Array, slope: Array) -> PPoly:
    """Cubic pieces with these values and slopes; unchecked, for thousands of them are made."""
    step = _SPLINE_STEP
    secant = np.diff(height, axis=0) / step
    left, right = slope[:-1], slope[1:]
    bend = (left + right - 2 * secant) / step
    pieces = np.stack([bend / step, (secant - left) / step - bend, left, height[:-1]])
    return PPoly.construct_fast(pieces, grid, extrapolate=False)


_KNOTS = 32


@dataclass(frozen=True, eq=False)
class OutputMoments:
    """E[(Gamma_n - o)(Gamma_n - o)' | tilt b] = f bb' + p I - (1-p)(bo' + ob') + oo', o = offset.

    f = (E[g^2] - p) / sigma^2 and the participation p are splines in sigma = |b|.
    """

    offset: Array
    factor: CubicSpline
    participation: CubicSpline

    @staticmethod
    def at(n: NDArray[np.int64], largest_sigma: float, offset: Array) -> tuple[OutputMoments, ...]:
        """Moments for each n, for queries whose score deviation is up to `largest_sigma`."""
        knots = np.linspace(largest_sigma / 64, largest_sigma, _KNOTS)
        law = gaussian_law(knots[:, None], n)
        square = law.mse + 2 * knots[:, None] * law.bias + knots[:, None] ** 2
        factor = (square - law.participation) / knots[:, None] ** 2
        return tuple(
            OutputMoments(offset, CubicSpline(knots, f), CubicSpline(knots, p))
            for f, p in zip(factor.T, law.participation.T, strict=True)
        )

    def coefficients(self, tilts: Array) -> tuple[Array, Array]:
        """f and p for each query."""
        sigma = np.clip(np.linalg.norm(tilts, axis=1), *self.factor.x[[0, -1]])
        return self.factor(sigma), self.participation(sigma)

    def participation_at(self, sigma: Array) -> Array:
        """p for queries given by the deviation of their scores."""
        return np.asarray(self.participation(np.clip(sigma, *self.factor.x[[0, -1]])))

    def mean(self, tilts: Array) -> Array:
        """E Gamma_n for each query, (m, d): its tilt, shrunk by the participation."""
        return tilts * (1 - self.coefficients(tilts)[1])[:, None]

    def inner(self, tilts: Array, values: Array, matrices: Array) -> Array:
        """<values M values', matrix> for each query's own M and matrix (m, d_v, d_v)."""
        f, p = self.coefficients(tilts)
        b, o = tilts @ values.T, values @ self.offset
        turned = (matrices @ b[:, :, None])[..., 0]
        found = f * (turned * b).sum(axis=1) - 2 * (1 - p) * (turned @ o)
        found += p * (matrices * (values @ values.T)).sum(axis=(1, 2))
        return found + (matrices @ o) @ o


_STRATA_REACH = 7.0


@dataclass(frozen=True, eq=False)
class QueryRule:
    """Standard normal queries in antithetic pairs, with components to give them along Bg."""

    white: WhitenedHead
    queries: Array  # (Q, d)
    strata: Array  # (Q,)
    share: Array  # (Q,), of sum one

    @staticmethod
    def of(white: WhitenedHead, count: int, seed: int = 0) -> QueryRule:
        """A rule of about `count` queries."""
        half = normal_rule(len(white.B), max(count // 2, 2), seed)
        order = np.random.default_rng(seed).permutation(len(half))
        strata = _STRATA_REACH * (order + 0.5) / len(half)
        strata = np.concatenate([strata, -strata])
        share = np.exp(-(strata**2) / 2)
        return QueryRule(white, np.concatenate([half, -half]), strata, share / share.sum())

    def tilts(self) -> Array:
        """Tilts (Q, d) of the queries as they are."""
        return self.white.tilts(self.queries)

    def tilts_for(self, g: Array) -> Array:
        """Tilts (m, Q, d) of the queries, stratified along Bg for each whitened key g."""
        direction = g @ self.white.B.T
        direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)
        moved = (self.strata[:, None] - self.queries @ direction.T).T
        return self.tilts() + moved[..., None] * (direction @ self.white.B)[:, None, :]


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
