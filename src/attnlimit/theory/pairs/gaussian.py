"""The two-query law for Gaussian keys: the plane of two tilts, summed one axis at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PPoly

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep
from attnlimit.theory.pairs.plane import Across, HeightNodes, PairGrid, Plane, PlaneSums

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
