"""Keys on the unit sphere: the disc that two tilts see of it (docs/theory/sphere.md).

In the plane of two tilts a key is (cos a, sin a cos b), with densities sin^(d-2) of a, sin^(d-3) of
b. Gauss panels in the angles are cut so that scores move by little in each; keys that neither
query can see among n get none. Beyond a cap one of the n keys takes nearly all the weight: laws
approach the hard maximum's in powers of 1/size, and are extrapolated from few sizes below the cap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.one_query.quadrature import PAIRS, key_weights
from attnlimit.theory.two_query.law import Across, HeightNodes, PairGrid, Plane, PlaneSums
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio

PANEL = 4.0  # scores move by at most this much in a panel
ANGLE = 2.5  # and angles by this over sqrt(d)
DEPTH = 16.0  # a key whose score is log n and this below the least alpha weighs nothing
_UNSEEN = 32.0  # natural logarithms below 1/n of densities that never matter
_CHUNK = 1_500_000


def across_sums(
    base: Array,
    spread: Array,
    alpha: Array,
    dim: int,
    points: int,
    n: NDArray[np.int64],
    degrees: tuple[int, ...],
) -> tuple[Array, dict[tuple[int, int], Array]]:
    """1 - E e^{-w} and E[w^k e^{-w} z^m] for w = e^{base + spread z - alpha}.

    (K, J) each, one row for each base and spread; z = cos b, b of density sin^(dim-3). Only the z
    that are seen matter: the others leave e^{-w} z^m at what it is without keys, E z^m.
    """
    names = [(k, m) for k, degree in enumerate(degrees) for m in range(degree + 1)]
    found = np.zeros((len(names), len(base), len(alpha)))
    if dim == 2:
        z = np.broadcast_to([1.0, -1.0], (len(base), 2))
        score = base[:, None] + spread[:, None] * z
        found[:] = _kernel(score, np.full(z.shape, 0.5), z, alpha, degrees)
    else:
        _fill_seen(found, base, spread, alpha, dim, points, n, degrees)
    sums = dict(zip(names, found, strict=True))
    missed = sums[0, 0]
    for m in range(degrees[0] + 1):
        sums[0, m] = _power_mean(dim, m) - sums[0, m]
    return missed, sums


def _fill_seen(
    found: Array,
    base: Array,
    spread: Array,
    alpha: Array,
    dim: int,
    points: int,
    n: NDArray[np.int64],
    degrees: tuple[int, ...],
) -> None:
    """`_kernel` for every row, over panels in b that hold the z that are seen."""
    least = margin(dim - 3, n)
    top = float(np.cos(least))
    depth = float(np.log(n.max())) + DEPTH
    low = np.clip((alpha[0] - depth - base) / np.maximum(spread, 1e-300), -top, top)
    turns = (np.arccos(low) - least) * np.sqrt(dim) / ANGLE
    panels = np.ceil(np.maximum((top - low) * spread / PANEL, turns)).astype(np.int64)
    rows = np.flatnonzero(low < top)
    rows = rows[np.argsort(panels[rows], kind="stable")]
    start = 0
    while start < len(rows):
        size = int(panels[rows[start]])
        most = max(1, _CHUNK // (points * (size + size // 4 + 1) * len(alpha)))
        block = rows[start : start + most]
        block = block[panels[block] <= size + size // 4 + 1]
        edges = top + (low[block, None] - top) * np.linspace(0, 1, int(panels[block[-1]]) + 1)
        angle, width = panel_nodes(np.arccos(np.clip(edges, -1, 1)), points)
        z = np.cos(angle)
        weight = width * np.sin(angle) ** (dim - 3) / mass(dim - 3)
        score = base[block, None] + spread[block, None] * z
        found[:, block] = _kernel(score, weight, z, alpha, degrees)
        start += len(block)


def _kernel(score: Array, weight: Array, z: Array, alpha: Array, degrees: tuple[int, ...]) -> Array:
    """E[(1 - e^{-w}) z^m], and E[w^k e^{-w} z^m] for k > 0, in order; (sums, rows, J)."""
    powers = np.stack([weight * z**m for m in range(max(degrees) + 1)], axis=-1)
    w = key_weights(score[:, None, :] - alpha[:, None])
    decay = np.exp(-w)
    still = powers[..., : degrees[0] + 1]
    found = [still.sum(axis=1)[:, None] - decay @ still]
    for degree in degrees[1:]:
        decay *= w
        found.append(decay @ powers[..., : degree + 1])
    return np.moveaxis(np.concatenate(found, axis=-1), -1, 0)


def _power_mean(dim: int, power: int) -> float:
    """E z^power for z = cos b, b of density sin^(dim-3); for dim = 2 a random sign."""
    if power % 2:
        return 0.0
    return float(np.prod([(k - 1) / (dim - 3 + k) for k in range(2, power + 1, 2)]))


def panel_nodes(edges: Array, points: int) -> tuple[Array, Array]:
    """Gauss nodes and weights of the panels between `edges` (m, P + 1), as rows."""
    unit, unit_weight = np.polynomial.legendre.leggauss(points)
    half, middle = np.diff(edges, axis=1) / 2, (edges[:, 1:] + edges[:, :-1]) / 2
    place = middle[..., None] + half[..., None] * unit
    width = np.abs(half)[..., None] * unit_weight
    return place.reshape(len(edges), -1), width.reshape(len(edges), -1)


def mass(power: int) -> float:
    """Integral of sin^power over (0, pi)."""
    return float(np.exp(np.log(np.pi) / 2 + gammaln((power + 1) / 2) - gammaln(power / 2 + 1)))


def margin(power: int, n: NDArray[np.int64]) -> float:
    """The angle below which none of n keys ever is."""
    if power <= 0:
        return 0.0
    return float(np.arcsin(np.exp(-(_UNSEEN + np.log(float(n.max()))) / power)))


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


_SPREAD = 2.5  # most by which the gap of heights may vary among the n of one group
_FROZEN = 8.0  # the cap for one query, as the gap of the two best scores of n
_LEVELS = np.array([1.0, 2.0, 4.0])  # sizes are the cap over these


def height_gap(dim: int, n: Array) -> Array:
    """About the gap between the best two heights of n tokens."""
    return below_top(dim, 2 / (n + 1)) - below_top(dim, 1 / (n + 1))


def groups(dim: int, n: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Runs of the increasing n whose best heights lie similarly close: one cap serves them."""
    gap = height_gap(dim, n.astype(np.float64))
    found, start = [], 0
    for k in range(1, len(n) + 1):
        if k == len(n) or gap[start] > _SPREAD * gap[k]:
            found.append(n[start:k])
            start = k
    return found


def extrapolation(dim: int, n: NDArray[np.int64], size: float) -> tuple[Array, Array]:
    """Sizes of tilts to evaluate one query's law at, and their shares in that at `size`.

    The law itself, or beyond the cap the parabola in 1/size through three sizes.
    """
    cap = _FROZEN / float(height_gap(dim, n.max()))
    if size <= cap:
        return np.array([size]), np.ones(1)
    return cap / _LEVELS, parabola(cap / size)


def parabola(place: float) -> Array:
    """Shares of the values at cap / 1, cap / 2 and cap / 4 in that at cap / place."""
    others = [np.delete(_LEVELS, k) for k in range(len(_LEVELS))]
    pairs = zip(_LEVELS, others, strict=True)
    return np.array([np.prod((place - rest) / (node - rest)) for node, rest in pairs])


def capped(tilts: Array, cap: float) -> Array:
    """The same tilts, none longer than the cap."""
    size = np.linalg.norm(tilts, axis=-1, keepdims=True)
    return np.asarray(tilts * np.minimum(1.0, cap / np.maximum(size, 1e-300)))
