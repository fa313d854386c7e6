"""Newton's method with backtracking for convex functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array

SHORTEST = 1e-10
SUFFICIENT = 1e-4
"""Share of the predicted decrease that a step must reach."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """Result of a descent; `decrement` is twice the decrease predicted for one more step."""

    x: Array
    value: float
    decrement: float
    steps: int


def descend(
    value: Callable[[Array], float],
    slopes: Callable[[Array], tuple[Array, Array]],
    start: Array,
    *,
    tolerance: float,
    steps: int,
    longest: Callable[[Array, Array], float] | None = None,
    rounding: float = 0.0,
    floor: Array | float = 1e-300,
) -> Minimum:
    """Minimise `value` from `start` until the decrement is below `tolerance` times the value.

    Parameters
    ----------
    slopes : callable
        The gradient and the Hessian at x.
    longest : callable, optional
        Largest fraction of a step, given x and the step; 1 by default.
    rounding : float
        Relative rounding error of `value`.
    floor : array or float
        Smallest curvature of each variable.

    The descent stops, without an error, after `steps` steps or where no step length decreases the
    value: `decrement` shows it.
    """
    x = np.asarray(start, dtype=np.float64)
    here = value(x)
    decrement = np.inf
    for taken in range(1, steps + 1):
        gradient, hessian = slopes(x)
        move = scaled_solve(hessian, gradient, floor)
        decrement = -float(gradient @ move)
        if decrement <= tolerance * abs(here):
            return Minimum(x, here, decrement, taken)
        length = 1.0 if longest is None else min(1.0, longest(x, move))
        while True:
            there = value(x + length * move)
            if there <= here - SUFFICIENT * length * decrement + rounding * abs(here):
                break
            length /= 2
            if length < SHORTEST:
                return Minimum(x, here, decrement, taken)
        x, here = x + length * move, there
    return Minimum(x, here, decrement, steps)


def scaled_solve(hessian: Array, gradient: Array, floor: Array | float) -> Array:
    """Newton's step -H^-1 g with the variables scaled to a unit diagonal, safe when H is flat."""
    scale = np.sqrt(np.maximum(np.diag(hessian), floor))
    scaled = hessian / np.outer(scale, scale) + 1e-13 * np.eye(len(scale))
    return np.asarray(-np.linalg.solve(scaled, gradient / scale) / scale)
