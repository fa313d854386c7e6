"""The two-query law for keys on the unit sphere: the disc that two tilts see of it.

In the plane of two tilts a key is (cos a, sin a cos b), with densities sin^(d-2) of a, sin^(d-3) of
b. Gauss panels in the angles are cut so that scores move by little in each; keys that neither
query can see among n get none (docs/theory/sphere.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.law.quadrature import PAIRS
from attnlimit.theory.pairs.plane import Across, HeightNodes, PairGrid, Plane, PlaneSums
from attnlimit.theory.pairs.sphere.sums import (
    ANGLE,
    DEPTH,
    PANEL,
    across_sums,
    margin,
    mass,
    panel_nodes,
)
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio

_COARSE_STEP, _COARSE_POINTS = 0.75, 6  # errors below 1e-5 of a sum
_GRID = 2001
_SHARP = 40.0  # from this size of tilts on


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

    def fit_for(self, size: float) -> SphereKeys:
        """The same or, for tilts so long that scores are sharp, with a rule that is cheaper."""
        return self.coarse() if size > _SHARP else self

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
        seen = size * np.cos(angle) > size * surely - float(np.log(n.max())) - DEPTH
        cost = np.where(seen, size * np.sin(angle) / PANEL, 0.0)
        nodes = self._heights(size, angle, np.maximum(cost, np.sqrt(self.dim) / ANGLE))
        return replace(nodes, weight=nodes.weight / nodes.weight.sum())

    def _angles(self, turn: float, n: NDArray[np.int64]) -> Array:
        """A grid of angles, fine near 0 and `turn`."""
        least = margin(self.dim - 2, n)
        near = np.geomspace(1e-8, 0.5, _GRID // 8)
        grid = np.concatenate([np.linspace(0, np.pi, _GRID), near, turn - near, turn + near])
        return np.unique(np.clip(grid, least, np.pi - least))

    def _heights(self, size: float, angle: Array, cost: Array) -> HeightNodes:
        """Nodes in panels of equal cost, given its density on a grid of angles."""
        steps = (cost[1:] + cost[:-1]) / 2 * np.diff(angle)
        total = np.append(0.0, np.cumsum(steps))
        panels = max(int(np.ceil(total[-1])), 1)
        edges = np.interp(np.linspace(0, total[-1], panels + 1), total, angle)
        place, width = panel_nodes(edges[None], self.points)
        place, width = place[0, ::-1], width[0, ::-1]
        height, side = np.cos(place), np.sin(place)
        weight = width * side ** (self.dim - 2) / mass(self.dim - 2)
        return HeightNodes(size * height, weight, height, side**2 / (self.dim - 1))

    @property
    def across(self) -> Across:
        """The rest of a key of length one."""
        free = max(self.dim - 2, 1)
        return Across(1 / free, 1 / free, free / (free + 2))

    def sums(
        self,
        plane: Plane,
        first: HeightNodes,
        alpha: PairGrid,
        n: NDArray[np.int64],
        degrees: tuple[int, ...],
    ) -> PlaneSums:
        """By panels in the second angle, for each height."""
        depth = float(np.log(n.max())) + DEPTH
        turn = float(np.arctan2(plane.sine, plane.cosine))
        angle = self._angles(turn, n)
        one, other = plane.sizes
        seen = one * np.cos(angle) > alpha[0][0] - depth
        seen_2 = other * np.cos(angle - turn) > alpha[1][0] - depth
        slope = np.maximum(np.abs(np.sin(angle - turn)), np.abs(np.sin(angle + turn)))
        # Across the plane's first axis the second query's scores are smooth on this scale.
        smooth = max(1.0, other * plane.sine / (2 * self.dim)) if self.dim > 8 else 1.0
        cost = np.where(seen, one * np.sin(angle), 0.0)
        cost = np.maximum(cost, np.where(seen_2, other * slope / smooth, 0.0)) / PANEL
        cost = np.where(seen | seen_2, np.maximum(cost, np.sqrt(self.dim) / ANGLE), 1e-3)
        nodes = self._heights(one, angle, cost)
        side = np.sqrt(np.maximum(1 - nodes.height**2, 0.0))[:, None]
        base, spread = other * plane.cosine * nodes.height, other * plane.sine * side[:, 0]
        missed, sums = across_sums(base, spread, alpha[1], self.dim, self.points, n, degrees)
        return PlaneSums(nodes, missed, {(k, m): side**m * sum_ for (k, m), sum_ in sums.items()})


def below_top(dim: int, chance: Array | float) -> Array:
    """How far below height one the cap ends in which a token is with this chance."""
    half = (dim - 1) / 2
    return np.asarray(2 * betaincinv(half, half, chance))
