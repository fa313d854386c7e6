"""The two-query law for keys on the unit sphere: the disc that two tilts see of it.

In the plane of two tilts a key is (cos a, sin a cos b), with densities sin^(d-2) of a, sin^(d-3) of
b. Gauss panels in the angles are cut so that scores move by little in each; keys that neither
query can see among n get none (docs/theory/sphere.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.law.quadrature import PAIRS, key_weights
from attnlimit.theory.pairs.law import PairTable
from attnlimit.theory.pairs.plane import HeightNodes, Plane, PlaneSums, plane_table
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio

_PANEL = 4.0  # scores move by at most this much in a panel
_ANGLE = 2.5  # and angles by this over sqrt(d)
_UNSEEN = 32.0  # natural logarithms below 1/n of densities that never matter
_DEPTH = 16.0  # a key whose score is log n and this below the least alpha weighs nothing
_COARSE_STEP, _COARSE_POINTS = 0.75, 6  # errors below 1e-5 of a sum
_GRID = 2001
_CHUNK = 1_500_000


@dataclass(frozen=True, eq=False)
class SphereKeys:
    """Keys uniform on the unit sphere of R^d, d >= 2; `values` and `score` absorb the radius."""

    score: Array  # (d, d): tilt of the unit query x is score @ x
    values: Array  # (d_v, d)
    step: float = PAIRS.step
    points: int = 10  # Gauss points in each panel: errors below 1e-10 of a sum

    @staticmethod
    def of(head: Head, tokens: Sphere) -> SphereKeys:
        """The head, seen from tokens of length one."""
        return SphereKeys(tokens.radius**2 * head.A, tokens.radius * head.V)

    def coarse(self) -> SphereKeys:
        """The same for sharp scores, where a rule that is cheaper is good enough."""
        return replace(self, step=_COARSE_STEP, points=_COARSE_POINTS)

    @property
    def dim(self) -> int:
        """Dimension of the keys."""
        return len(self.score)

    @property
    def offset(self) -> Array:
        """The mean limit is zero."""
        return np.zeros(self.dim)

    def tilts(self, queries: Array) -> Array:
        """Tilts of unit queries, one a row."""
        return queries @ self.score.T

    def limit_height(self, size: float) -> float:
        """I_{d/2}(size) / I_{d/2-1}(size)."""
        return float(bessel_ratio(self.dim / 2 - 1, np.array([size]))[0])

    def nodes(self, size: float, n: NDArray[np.int64]) -> HeightNodes:
        """All heights, with panels that resolve the scores where some of n keys weigh anything."""
        angle = self._angles(0.0, n)
        # The best of n is above this height but for probability e^-60.
        surely = 1 - float(below_top(self.dim, min(60 / float(n.min()), 1.0)))
        seen = size * np.cos(angle) > size * surely - float(np.log(n.max())) - _DEPTH
        cost = np.where(seen, size * np.sin(angle) / _PANEL, 0.0)
        nodes = self._heights(size, angle, np.maximum(cost, np.sqrt(self.dim) / _ANGLE))
        return replace(nodes, weight=nodes.weight / nodes.weight.sum())

    def _angles(self, turn: float, n: NDArray[np.int64]) -> Array:
        """A grid of angles, fine near 0 and `turn`."""
        margin = _margin(self.dim - 2, n)
        near = np.geomspace(1e-8, 0.5, _GRID // 8)
        grid = np.concatenate([np.linspace(0, np.pi, _GRID), near, turn - near, turn + near])
        return np.unique(np.clip(grid, margin, np.pi - margin))

    def _heights(self, size: float, angle: Array, cost: Array) -> HeightNodes:
        """Nodes in panels of equal cost, given its density on a grid of angles."""
        steps = (cost[1:] + cost[:-1]) / 2 * np.diff(angle)
        total = np.append(0.0, np.cumsum(steps))
        panels = max(int(np.ceil(total[-1])), 1)
        edges = np.interp(np.linspace(0, total[-1], panels + 1), total, angle)
        place, width = _panel_nodes(edges[None], self.points)
        place, width = place[0, ::-1], width[0, ::-1]
        height, side = np.cos(place), np.sin(place)
        weight = width * side ** (self.dim - 2) / _mass(self.dim - 2)
        return HeightNodes(size * height, weight, height, side**2 / (self.dim - 1))

    def table(
        self, plane: Plane, first: HeightNodes, alpha: tuple[Array, Array], n: NDArray[np.int64]
    ) -> PairTable:
        """Sums over the second coordinate by panels for each height, then matrix products."""
        depth = float(np.log(n.max())) + _DEPTH
        turn = float(np.arctan2(plane.sine, plane.cosine))
        angle = self._angles(turn, n)
        one, other = plane.sizes
        seen = one * np.cos(angle) > alpha[0][0] - depth
        seen_2 = other * np.cos(angle - turn) > alpha[1][0] - depth
        slope = np.maximum(np.abs(np.sin(angle - turn)), np.abs(np.sin(angle + turn)))
        # Across the plane's first axis the second query's scores are smooth on this scale.
        smooth = max(1.0, other * plane.sine / (2 * self.dim)) if self.dim > 8 else 1.0
        cost = np.where(seen, one * np.sin(angle), 0.0)
        cost = np.maximum(cost, np.where(seen_2, other * slope / smooth, 0.0)) / _PANEL
        cost = np.where(seen | seen_2, np.maximum(cost, np.sqrt(self.dim) / _ANGLE), 1e-3)
        nodes = self._heights(one, angle, cost)
        side = np.sqrt(np.maximum(1 - nodes.height**2, 0.0))[:, None]
        base, spread = other * plane.cosine * nodes.height, other * plane.sine * side[:, 0]
        missed, *sums = _across_sums(base, spread, alpha[1], self.dim, self.points, n)
        fade, pull, first_sum, second = side * sums[0], sums[1], side * sums[2], side**2 * sums[3]
        rest = (side**2 * pull - second) / max(self.dim - 2, 1)
        return plane_table(
            plane, nodes, alpha, PlaneSums(missed, fade, pull, first_sum, second, rest)
        )


def below_top(dim: int, chance: Array | float) -> Array:
    """How far below height one the cap ends in which a token is with this chance."""
    half = (dim - 1) / 2
    return np.asarray(2 * betaincinv(half, half, chance))


def _across_sums(
    base: Array, spread: Array, alpha: Array, dim: int, points: int, n: NDArray[np.int64]
) -> Array:
    """1 - E e^{-w}, E[e^{-w} z], E[w e^{-w} (1, z, z^2)] for w = e^{base + spread z - alpha}.

    (5, K, J), one row for each base and spread; z = cos b, b of density sin^(dim-3). As E z = 0
    only the z that are seen matter.
    """
    found = np.zeros((5, len(base), len(alpha)))
    if dim == 2:
        z = np.broadcast_to([1.0, -1.0], (len(base), 2))
        found[:] = _kernel(base[:, None] + spread[:, None] * z, np.full(z.shape, 0.5), z, alpha)
        return found
    margin = _margin(dim - 3, n)
    top = float(np.cos(margin))
    depth = float(np.log(n.max())) + _DEPTH
    low = np.clip((alpha[0] - depth - base) / np.maximum(spread, 1e-300), -top, top)
    turns = (np.arccos(low) - margin) * np.sqrt(dim) / _ANGLE
    panels = np.ceil(np.maximum((top - low) * spread / _PANEL, turns)).astype(np.int64)
    rows = np.flatnonzero(low < top)
    rows = rows[np.argsort(panels[rows], kind="stable")]
    start = 0
    while start < len(rows):
        size = int(panels[rows[start]])
        most = max(1, _CHUNK // (points * (size + size // 4 + 1) * len(alpha)))
        block = rows[start : start + most]
        block = block[panels[block] <= size + size // 4 + 1]
        edges = top + (low[block, None] - top) * np.linspace(0, 1, int(panels[block[-1]]) + 1)
        angle, width = _panel_nodes(np.arccos(np.clip(edges, -1, 1)), points)
        z = np.cos(angle)
        weight = width * np.sin(angle) ** (dim - 3) / _mass(dim - 3)
        found[:, block] = _kernel(base[block, None] + spread[block, None] * z, weight, z, alpha)
        start += len(block)
    return found


def _kernel(score: Array, weight: Array, z: Array, alpha: Array) -> Array:
    w = key_weights(score[:, None, :] - alpha[:, None])
    decay = np.exp(-w)
    first = np.stack([weight, weight * z], axis=-1)
    kept = first.sum(axis=1)[:, None, :] - decay @ first
    decay *= w
    pulled = decay @ np.stack([weight, weight * z, weight * z**2], axis=-1)
    return np.moveaxis(np.concatenate([kept * np.array([1.0, -1.0]), pulled], axis=-1), -1, 0)


def _panel_nodes(edges: Array, points: int) -> tuple[Array, Array]:
    """Gauss nodes and weights of the panels between `edges` (m, P + 1), as rows."""
    unit, unit_weight = np.polynomial.legendre.leggauss(points)
    half, middle = np.diff(edges, axis=1) / 2, (edges[:, 1:] + edges[:, :-1]) / 2
    place = middle[..., None] + half[..., None] * unit
    width = np.abs(half)[..., None] * unit_weight
    return place.reshape(len(edges), -1), width.reshape(len(edges), -1)


def _mass(power: int) -> float:
    """Integral of sin^power over (0, pi)."""
    return float(np.exp(np.log(np.pi) / 2 + gammaln((power + 1) / 2) - gammaln(power / 2 + 1)))


def _margin(power: int, n: NDArray[np.int64]) -> float:
    """The angle below which none of n keys ever is."""
    if power <= 0:
        return 0.0
    return float(np.arcsin(np.exp(-(_UNSEEN + np.log(float(n.max()))) / power)))
