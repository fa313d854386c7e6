"""The two-query law for Gaussian keys: the plane of two tilts, summed one axis at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep
from attnlimit.theory.pairs.law import PairTable
from attnlimit.theory.pairs.plane import HeightNodes, Plane, PlaneSums, plane_table

_SPLINE_STEP = 0.25


def normal_nodes(score_std: float) -> tuple[Array, Array]:
    """Trapezoid nodes for g ~ N(0,1) that resolve exp(-t e^{score_std g}) to about 1e-8."""
    step = min(0.5, PAIRS.step / max(score_std, 1e-300))
    g = np.arange(-8.5, min(2 * score_std + 8.5, 10.0) + step, step)
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

    def table(
        self, plane: Plane, first: HeightNodes, alpha: tuple[Array, Array], n: NDArray[np.int64]
    ) -> PairTable:
        """Tables over keys (y1, y2) in the plane: s = sigma1 y1, s' = sigma2 (r y1 + rho y2).

        Sums over y2 depend on alpha' - sigma2 r y1 alone, so they are five functions of one
        variable; the sums over y1 are then matrix products.
        """
        shift = plane.sizes[1] * plane.cosine * first.height[:, None]
        sums = _across_sums(plane.sizes[1] * plane.sine, alpha[1] - shift)
        return plane_table(plane, first, alpha, sums)


def _across_sums(spread: float, x: Array) -> PlaneSums:
    """1 - E e^{-w}, E[e^{-w} g], E[w e^{-w} (1, g, g^2)] for w = e^{spread g - x}, g normal."""
    g, weight = normal_nodes(spread)
    grid = np.arange(x.min() - 1, x.max() + 1 + _SPLINE_STEP, _SPLINE_STEP)
    sweep = Sweep.over(spread * g, weight, grid)
    powers = np.stack([np.ones(len(g)), g, g**2], axis=1)
    once, twice = sweep.moment(1, powers), sweep.moment(2, powers)
    # w falls with x like e^{-x}, so that slopes are moments too.
    height = np.column_stack([sweep.missed, sweep.moment(0, g), once])
    slope = np.column_stack([-once[:, 0], once[:, 1], twice - once])
    found = CubicHermiteSpline(grid, height, slope)(x)
    missed, fade, pull, first, second = (np.ascontiguousarray(found[..., k]) for k in range(5))
    return PlaneSums(missed, fade, pull, first, second, rest=pull)
