"""Standard normal keys: sums over the plane of two tilts are few functions of one variable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PPoly
from scipy.special import ndtri

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.one_query.quadrature import Sweep
from attnlimit.theory.two_query.isotropic import (
    MOMENTS,
    HeightNodes,
    IsotropicKeys,
    Plane,
    PlaneSums,
)
from attnlimit.tokens.gaussian import normal_rule
from attnlimit.tokens.score_law import standard_normal_grid

_SPLINE_STEP = 0.2
_TILT, _MOST_CORRELATED = 0.8, 0.7


def normal_nodes(score_std: float) -> tuple[Array, Array]:
    """Trapezoid nodes for g ~ N(0,1) that resolve exp(-t e^{score_std g}) to about 1e-6."""
    g, weight = standard_normal_grid(score_std, 0.75 / max(score_std, 1.0))
    return g, weight / weight.sum()


@dataclass(frozen=True, eq=False)
class GaussianKeys(IsotropicKeys):
    """Standard normal keys: a query's scores are |b| g, and its limit is its tilt b."""

    @staticmethod
    def of(white: WhitenedHead) -> GaussianKeys:
        """Keys and queries of a head, whitened."""
        return GaussianKeys(white.B.T, white.values, white.offset)

    @property
    def across(self) -> tuple[float, float]:
        return 1.0, 0.0

    def limit_height(self, size: Array | float) -> Array:
        return np.asarray(size)

    def log_mass(self, size: Array) -> Array:
        return np.asarray(size**2 / 2)

    def top(self, n: float) -> float:
        return float(-ndtri(0.7 / n))  # the median

    def reach(self, n: float) -> float:
        return float(np.sqrt(2 * np.log(n)))

    def at_heights(self, units: Array, chance: Array, rng: np.random.Generator) -> Array:
        keys = rng.standard_normal((*chance.shape, self.dim))
        keys -= (keys @ units[..., None]) * units[:, None]
        return np.asarray(keys - ndtri(chance)[..., None] * units[:, None])

    def nodes(self, size: float, n: NDArray[np.int64]) -> HeightNodes:
        g, weight = normal_nodes(size)
        return HeightNodes(size * g, weight, g, np.ones(len(g)))

    def pairs(self, count: int, n: NDArray[np.int64], seed: int) -> tuple[Array, Array, Array]:
        """The others have the density tilted by e^{c <b, b'>}, mode by mode of the score matrix."""
        normals = normal_rule(2 * self.dim, count, seed)
        singular, right = np.linalg.svd(self.score)[1:]
        first, second = normals[:, : self.dim] @ right.T, normals[:, self.dim :] @ right.T
        typical = float((singular**2).sum() + self.offset @ self.offset)
        shrunk = min(1.0, 2 * np.log(float(n.max())) / max(typical, 1e-300))
        correlation = np.minimum(_TILT * shrunk * singular**2, _MOST_CORRELATED)
        tilted = first / np.sqrt(1 - correlation**2)
        first = np.concatenate([first, tilted])
        second = np.concatenate([second, second + correlation * tilted])
        exponent = (first * second) @ correlation
        log_mass = np.log1p(-(correlation**2)).sum() / 2
        ratio = np.exp(log_mass + np.logaddexp(exponent, -exponent) - np.log(2))
        return first @ right, second @ right, 2 / (1 + ratio)

    def sums(
        self, plane: Plane, first: HeightNodes, alpha: tuple[Array, Array], n: NDArray[np.int64]
    ) -> PlaneSums:
        """Sums over keys (y1, y2) in the plane: s = sigma1 y1, s' = sigma2 (r y1 + rho y2).

        Those over y2 depend on alpha' - sigma2 r y1 alone.
        """
        spread = plane.sizes[1] * plane.sine
        x = alpha[1] - plane.sizes[1] * plane.cosine * first.height[:, None]
        g, weight = normal_nodes(spread)
        grid = np.arange(x.min() - 1, x.max() + 1 + _SPLINE_STEP, _SPLINE_STEP)
        sweep = Sweep.over(spread * g, weight, grid)
        moments = [sweep.moment(k, np.stack([g**m for m in range(3)], axis=1)) for k in range(3)]
        height = np.stack([moments[k][:, m] for k, m in MOMENTS], axis=1)
        # w falls with x like e^{-x}, so that slopes are moments too.
        slope = np.stack([moments[k + 1][:, m] - k * moments[k][:, m] for k, m in MOMENTS], axis=1)
        # The first one is 1 - phi, which keeps its digits where phi is near one.
        height[:, 0], slope[:, 0] = sweep.missed, -slope[:, 0]
        values = _spline(grid, height, slope)(x)
        sums = {name: np.ascontiguousarray(values[..., k]) for k, name in enumerate(MOMENTS)}
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
