"""What two queries on the sphere gain by being keys of each other: to first order, and on average.

Rare in many dimensions, but large: a query x that attends to the token y follows it. With
mu(y) = E[Gamma_n(y) | y is a key] and delta(x; y) what the key y adds to mu(x), the first-order
effect <V delta(x; y), V mu(y)> + <V delta(y; x), V mu(x)> is taken off each pair, and its average,
which strata of the score <Ax, y> know well, is put back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep, alpha_grid, key_weights
from attnlimit.theory.pairs.sphere.keys import SphereKeys, below_top
from attnlimit.theory.pairs.sphere.sharp import capped

_SIZES = 12
_HEIGHTS = 97
_QUERIES = 192
_STRATA = 32


@dataclass(frozen=True, eq=False)
class _OneQuery:
    """The mean output of a query with a tilt of one size, whose own token is a key."""

    sweep: Sweep
    drift: Array  # E[w e^{-w} height]
    n: Array

    @staticmethod
    def of(keys: SphereKeys, size: float, n: NDArray[np.int64]) -> _OneQuery:
        nodes = keys.nodes(size, n)
        alpha = alpha_grid(nodes.score, nodes.weight, n, PAIRS, reach=size)
        sweep = Sweep.over(nodes.score, nodes.weight, alpha)
        return _OneQuery(sweep, sweep.moment(1, nodes.height), n.astype(np.float64))

    def alone(self, own: Array) -> Array:
        """mu = a (own token) + b (direction), for own keys of these scores: (len n, 2, m)."""
        w = key_weights(own[:, None] - self.sweep.alpha)
        fade = np.exp(-w)
        found = []
        for others in self.n - 1:
            none, one = (self.sweep.meeting(others, k) for k in (0, 1))
            found.append([(w * fade) @ none, fade @ (self.drift * one)])
        return np.array(found)

    def moved(self, own: float, key: Array) -> Array:
        """delta = a (own token) + y (key) + b (direction), by score of the key: (len n, 3, m)."""
        w, v = (key_weights(s - self.sweep.alpha) for s in (own, key[:, None]))
        fade, other = np.exp(-w), np.exp(-v)
        before = self.alone(np.array([own]))[:, :, 0]
        found = []
        for (own_before, along_before), others in zip(before, self.n - 2, strict=True):
            none, one = (fade * self.sweep.meeting(max(others, 0.0), k) for k in (0, 1))
            own_now, along_now = other @ (w * none), other @ (self.drift * one)
            found.append([own_now - own_before, (v * other) @ none, along_now - along_before])
        return np.array(found)


@dataclass(frozen=True, eq=False)
class SphereOwnKeys:
    """First-order effect of the own keys, for queries whose tilts are cut at `cap`."""

    keys: SphereKeys
    n: NDArray[np.int64]
    cap: float
    means: tuple[tuple[RectBivariateSpline, RectBivariateSpline], ...]  # for each n

    @staticmethod
    def of(keys: SphereKeys, n: NDArray[np.int64], cap: float, queries: Array) -> SphereOwnKeys:
        """The control for queries like these."""
        sizes = np.minimum(np.linalg.norm(keys.tilts(queries), axis=1), cap)
        low, high = float(sizes.min()), float(sizes.max())
        knots = np.linspace(0.9 * low, 1.001 * high + 1e-9, _SIZES)
        heights = np.sin(np.linspace(-np.pi / 2, np.pi / 2, _HEIGHTS))
        table = np.array([_OneQuery.of(keys, float(s), n).alone(s * heights) for s in knots])
        own, along = (
            tuple(RectBivariateSpline(knots, heights, table[:, k, part]) for k in range(len(n)))
            for part in (0, 1)
        )
        return SphereOwnKeys(keys, n, cap, tuple(zip(own, along, strict=True)))

    def cut(self, queries: Array) -> Array:
        """Tilts of unit queries, none longer than the cap."""
        return capped(self.keys.tilts(queries), self.cap)

    def pair(self, x: Array, y: Array) -> Array:
        """The effect on E[Gamma_n(x).Gamma_n(y)], for each n."""
        return self._pulled(x, y[None])[0] + self._pulled(y, x[None])[0]

    def _pulled(self, x: Array, y: Array) -> Array:
        """<V delta(x; y), V mu(y)> for one query and several keys: (m, len n)."""
        tilt = self.cut(x[None])[0]
        size = float(np.linalg.norm(tilt))
        query = _OneQuery.of(self.keys, size, self.n)
        moved = query.moved(float(tilt @ x), y @ tilt)
        values = self.keys.values
        own, along = values @ x, values @ tilt / max(size, 1e-300)
        parts = zip(np.moveaxis(moved, 1, 0)[..., None], (own, y @ values.T, along), strict=True)
        delta = sum(share * part for share, part in parts)
        return np.asarray((delta * self._means(y)).sum(axis=2).T)

    def _means(self, y: Array) -> Array:
        """V mu(y) for each n: (len n, m, d_v)."""
        tilts = self.cut(y)
        size = np.linalg.norm(tilts, axis=1)
        unit = tilts / np.maximum(size, 1e-300)[:, None]
        height = np.clip((unit * y).sum(axis=1), -1, 1)
        values = self.keys.values.T
        return np.stack(
            [
                own.ev(size, height)[:, None] * (y @ values)
                + along.ev(size, height)[:, None] * (unit @ values)
                for own, along in self.means
            ]
        )

    def average(self, queries: Array, seed: int = 0) -> tuple[Array, Array]:
        """The average of `pair` over independent queries for each n, and its standard error.

        Keys are spread evenly over log P(score > s) from 1 down to where none of n is.
        """
        rng = np.random.default_rng(seed)
        depth = np.log(1e3 * float(self.n.max()))
        found = []
        for x in queries[:_QUERIES]:
            tilt = self.cut(x[None])[0]
            size = float(np.linalg.norm(tilt))
            unit = tilt / size if size > 0 else x
            above = np.exp(-depth * (np.arange(_STRATA) + rng.random()) / _STRATA)
            height = 1 - below_top(self.keys.dim, above)
            across = rng.standard_normal((_STRATA, len(x)))
            across -= np.outer(across @ unit, unit)
            across /= np.linalg.norm(across, axis=1, keepdims=True)
            y = height[:, None] * unit + np.sqrt(1 - height**2)[:, None] * across
            found.append(2 * (depth / _STRATA * above) @ self._pulled(x, y))
        return np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
