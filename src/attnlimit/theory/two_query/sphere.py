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
from attnlimit.theory.one_query.quadrature import SAMPLED, key_weights
from attnlimit.theory.two_query.isotropic import (
    MOMENTS,
    HeightNodes,
    IsotropicKeys,
    Plane,
    PlaneSums,
    isotropic_mean_error,
)
from attnlimit.theory.two_query.law import MeanError
from attnlimit.tokens import Sphere
from attnlimit.tokens.score_law import resolved_panels
from attnlimit.tokens.spherical import bessel_ratio, log_hypergeometric

_PANEL = 4.0  # scores move by at most this much in a panel
_ANGLE = 2.5  # and angles by this over sqrt(d)
_SHARP, _FEW_POINTS = 40.0, 6  # from this size of tilts on errors of 1e-5 of a sum are fine
_DEPTH = 16.0  # a key whose score is log n and this below the least alpha weighs nothing
_UNSEEN = 32.0  # natural logarithms below 1/n of densities that never matter
_GRID = 2001
_TILT = 0.2  # strength at which pairs of queries are drawn, over that of the keys they share
_SPREAD = 2.5  # most by which the gap of heights may vary among the n of one group
_PAIR_CAP, _ONE_CAP = 3.0, 8.0  # caps, as the gap of the two best scores of n
_LEVELS = np.array([1.0, 2.0, 4.0])  # sizes for one query are the cap over these


def sphere_mean_error(head: Head, radius: float, n: NDArray[np.int64], picks: int) -> MeanError:
    """E|m_n|^2 for each of increasing n, whatever the scale of the scores; dim at least 2."""
    keys = SphereKeys.of(head, radius)
    if np.linalg.norm(keys.score) > _SHARP * np.sqrt(keys.dim):
        keys = replace(keys, points=_FEW_POINTS, precision=SAMPLED)
    # One cap serves all n whose best heights lie similarly close.
    level = np.floor(np.log(height_gap(keys.dim, n.astype(np.float64))) / np.log(_SPREAD))
    runs = np.split(n, np.flatnonzero(np.diff(level)) + 1)
    parts = [isotropic_mean_error(keys, run, picks) for run in runs]
    stacked = [(part.mse, part.numerical_error) for part in parts]
    return MeanError(n, *np.concatenate(stacked, axis=1))


@dataclass(frozen=True, eq=False)
class SphereKeys(IsotropicKeys):
    """Keys uniform on the unit sphere of R^d, d >= 2; `values` and `score` absorb the radius."""

    points: int = 10  # Gauss points in each panel: errors below 1e-10 of a sum

    @staticmethod
    def of(head: Head, radius: float) -> SphereKeys:
        """The head, seen from tokens of length one."""
        return SphereKeys(radius**2 * head.A, radius * head.V, np.zeros(head.key_dim))

    @property
    def across(self) -> tuple[float, float]:
        free = max(self.dim - 2, 1)
        return 1 / free, 1 / free

    def limit_height(self, size: Array | float) -> Array:
        """I_{d/2}(size) / I_{d/2-1}(size)."""
        return bessel_ratio(self.dim / 2 - 1, np.atleast_1d(size)).reshape(np.shape(size))

    def log_mass(self, size: Array) -> Array:
        return log_hypergeometric(self.dim / 2 - 1, size)

    def top(self, n: float) -> float:
        return 1 - float(below_top(self.dim, 1 / (n + 1)))

    def reach(self, n: float) -> float:
        height = max(self.top(n), 0.1)
        return self.dim * height / (1 - height**2)

    def at_heights(self, units: Array, chance: Array, rng: np.random.Generator) -> Array:
        height = 1 - below_top(self.dim, chance)[..., None]
        around = rng.standard_normal((*chance.shape, self.dim))
        around -= (around @ units[..., None]) * units[:, None]
        around /= np.linalg.norm(around, axis=-1, keepdims=True)
        return np.asarray(height * units[:, None] + np.sqrt(1 - height**2) * around)

    def pairs(self, count: int, n: NDArray[np.int64], seed: int) -> tuple[Array, Array, Array]:
        """The second of the others is tilted to where it shares keys."""
        sphere, rng = Sphere(self.dim), np.random.default_rng(seed)
        first = sphere.points(count, 2 * seed)
        second = sphere.points(count, 2 * seed + 1)[rng.permutation(count)]
        towards = self.tilts(first) @ self.score
        length = np.linalg.norm(towards, axis=1, keepdims=True)
        towards = np.where(length > 0, towards / np.maximum(length, 1e-300), np.eye(self.dim)[0])
        typical = float(np.sqrt((self.tilts(first) ** 2).sum(axis=1).mean()))
        size = np.sqrt(2) * min(typical, self.reach(float(n.max())))
        strength = _TILT * size * float(self.limit_height(size))
        tilted = self._tilted(second, towards, strength)
        first, second = np.concatenate([first, first]), np.concatenate([second, tilted])
        height = strength * (second * np.concatenate([towards, towards])).sum(axis=1)
        log_mass = float(self.log_mass(np.array([strength]))[0])
        ratio = np.exp(np.logaddexp(height, -height) - np.log(2) - log_mass)
        return first, second, 2 / (1 + ratio)

    def _tilted(self, x: Array, towards: Array, strength: float) -> Array:
        """Move uniform points so that their density is e^{strength <towards, x>}: by their rank."""
        angle = np.linspace(0, np.pi, _GRID)
        log_density = strength * (np.cos(angle) - 1)
        if self.dim > 2:
            log_density += (self.dim - 2) * np.log(np.maximum(np.sin(angle), 1e-300))
        above = np.cumsum(np.exp(log_density - log_density.max()))
        height = (x * towards).sum(axis=1)
        around = x - height[:, None] * towards
        around /= np.maximum(np.linalg.norm(around, axis=1, keepdims=True), 1e-300)
        rank = (np.argsort(np.argsort(-height)) + 0.5) / len(x)
        turn = np.interp(rank * above[-1], above, angle)[:, None]
        return np.asarray(np.cos(turn) * towards + np.sin(turn) * around)

    def cuts(self, n: NDArray[np.int64], size: float, pair: bool) -> list[tuple[float, float]]:
        """The size itself, or beyond the cap a line in 1/size^2 (a parabola in 1/size for one)."""
        cap = (_PAIR_CAP if pair else _ONE_CAP) / float(height_gap(self.dim, n.max()))
        if size <= cap:
            return [(cap, 1.0)]
        if pair:
            part = (cap / size) ** 2
            return [(cap, 2 - part), (cap / np.sqrt(2), part - 1)]
        others = [np.delete(_LEVELS, k) for k in range(len(_LEVELS))]
        pairs = zip(_LEVELS, others, strict=True)
        shares = [float(np.prod((cap / size - rest) / (k - rest))) for k, rest in pairs]
        return list(zip(cap / _LEVELS, shares, strict=True))

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
        place, width = (nodes[::-1] for nodes in resolved_panels(edges, self.points))
        height, side = np.cos(place), np.sin(place)
        weight = width * side ** (self.dim - 2) / mass(self.dim - 2)
        return HeightNodes(size * height, weight, height, side**2 / (self.dim - 1))

    def sums(
        self, plane: Plane, first: HeightNodes, alpha: tuple[Array, Array], n: NDArray[np.int64]
    ) -> PlaneSums:
        """By panels in the second angle, for each height."""
        depth = float(np.log(n.max())) + _DEPTH
        turn = float(np.arctan2(plane.sine, plane.cosine))
        angle = self._angles(turn, n)
        size, size_2 = plane.sizes
        seen = size * np.cos(angle) > alpha[0][0] - depth
        seen_2 = size_2 * np.cos(angle - turn) > alpha[1][0] - depth
        slope = np.maximum(np.abs(np.sin(angle - turn)), np.abs(np.sin(angle + turn)))
        # Across the plane's first axis the second query's scores are smooth on this scale.
        smooth = max(1.0, size_2 * plane.sine / (2 * self.dim)) if self.dim > 8 else 1.0
        cost = np.where(seen, size * np.sin(angle), 0.0)
        cost = np.maximum(cost, np.where(seen_2, size_2 * slope / smooth, 0.0)) / _PANEL
        cost = np.where(seen | seen_2, np.maximum(cost, np.sqrt(self.dim) / _ANGLE), 1e-3)
        nodes = self._heights(size, angle, cost)
        side = np.sqrt(np.maximum(1 - nodes.height**2, 0.0))[:, None]
        base, spread = size_2 * plane.cosine * nodes.height, size_2 * plane.sine * side[:, 0]
        missed, sums = across_sums(base, spread, alpha[1], self.dim, n, self.points)
        return PlaneSums(nodes, missed, {(k, m): side**m * sum_ for (k, m), sum_ in sums.items()})


def across_sums(
    base: Array, spread: Array, alpha: Array, dim: int, n: NDArray[np.int64], points: int
) -> tuple[Array, dict[tuple[int, int], Array]]:
    """1 - E e^{-w} and E[w^k e^{-w} z^m] for w = e^{base + spread z - alpha}.

    (K, J) each, one row for each base and spread; z = cos b, b of density sin^(dim-3). Only the z
    that are seen matter: the others leave e^{-w} z^m at what it is without keys, E z^m.
    """
    sums = np.zeros((len(MOMENTS), len(base), len(alpha)))
    if dim == 2:
        z = np.broadcast_to([1.0, -1.0], (len(base), 2))
        sums[:] = _kernel(base, spread, np.full(z.shape, 0.5), z, alpha)
    else:
        least = margin(dim - 3, n)
        top = float(np.cos(least))
        depth = float(np.log(n.max())) + _DEPTH
        low = np.clip((alpha[0] - depth - base) / np.maximum(spread, 1e-300), -top, top)
        turns = (np.arccos(low) - least) * np.sqrt(dim) / _ANGLE
        panels = np.ceil(np.maximum((top - low) * spread / _PANEL, turns)).astype(np.int64)
        panels[panels > 4] += -panels[panels > 4] % 4  # rows with as many go together
        for count in np.unique(panels[low < top]):
            rows = np.flatnonzero((panels == count) & (low < top))
            edges = top + (low[rows, None] - top) * np.linspace(0, 1, count + 1)
            angle, width = resolved_panels(np.arccos(np.clip(edges, -1, 1)), points)
            weight = width * np.sin(angle) ** (dim - 3) / mass(dim - 3)
            sums[:, rows] = _kernel(base[rows], spread[rows], weight, np.cos(angle), alpha)
    missed = sums[0].copy()
    sums[0], sums[1] = 1 - missed, -sums[1]  # E z = 0
    return missed, dict(zip(MOMENTS, sums, strict=True))


def _kernel(base: Array, spread: Array, weight: Array, z: Array, alpha: Array) -> Array:
    """E[(1 - e^{-w}) z^m], and E[w e^{-w} z^m], by `MOMENTS`: (5, rows, J)."""
    powers = np.stack([weight * z**m for m in range(3)], axis=-1)
    w = key_weights((base[:, None] + spread[:, None] * z)[:, None, :] - alpha[:, None])
    decay = np.exp(-w)
    still = powers[..., :2]
    gone = still.sum(axis=1)[:, None] - decay @ still
    decay *= w
    return np.moveaxis(np.concatenate([gone, decay @ powers], axis=-1), -1, 0)


def mass(power: int) -> float:
    """Integral of sin^power over (0, pi)."""
    return float(np.exp(np.log(np.pi) / 2 + gammaln((power + 1) / 2) - gammaln(power / 2 + 1)))


def margin(power: int, n: NDArray[np.int64]) -> float:
    """The angle below which none of n keys ever is."""
    if power <= 0:
        return 0.0
    return float(np.arcsin(np.exp(-(_UNSEEN + np.log(float(n.max()))) / power)))


def below_top(dim: int, chance: Array | float) -> Array:
    """How far below height one the cap ends in which a token is with this chance."""
    half = (dim - 1) / 2
    return np.asarray(2 * betaincinv(half, half, chance))


def height_gap(dim: int, n: Array) -> Array:
    """About the gap between the best two heights of n tokens."""
    return below_top(dim, 2 / (n + 1)) - below_top(dim, 1 / (n + 1))
