"""One loop for every self-consistent system: iterate x <- g(x), with Anderson acceleration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attnlimit.checks import Array


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Where the iteration stopped; `residual` is the largest |g(x) - x| there."""

    x: Array
    residual: float
    steps: int
    converged: bool


def fixed_point(
    g: Callable[[Array], Array],
    start: Array,
    tolerance: float = 1e-9,
    max_steps: int = 200,
    memory: int = 4,
    max_move: float = 3.0,
) -> FixedPoint:
    """Solve x = g(x) by Anderson acceleration (type II), each move capped at `max_move`.

    The history is dropped whenever an accelerated step makes the residual ten times worse, so
    that the loop falls back on plain iteration instead of diverging.
    """
    x = np.asarray(start, dtype=float)
    points: list[Array] = []
    residuals: list[Array] = []
    best_x, best = x, np.inf
    for step in range(1, max_steps + 1):
        f = g(x) - x
        size = float(np.max(np.abs(f)))
        if size < best:
            best_x, best = x, size
        if size < tolerance:
            return FixedPoint(x, size, step, True)
        if not np.isfinite(size):
            break
        if residuals and size > 10 * np.max(np.abs(residuals[-1])):
            points, residuals = [], []
        points, residuals = [*points, x][-memory - 1 :], [*residuals, f][-memory - 1 :]
        move = f
        if len(points) > 1:
            df = np.stack([b - a for a, b in pairwise(residuals)], 1)
            dx = np.stack([b - a for a, b in pairwise(points)], 1)
            mix, *_ = np.linalg.lstsq(df, f, rcond=1e-10)
            move = f - (dx + df) @ mix
        x = x + move * min(1.0, max_move / max(float(np.max(np.abs(move))), 1e-300))
    return FixedPoint(best_x, best, max_steps, False)
