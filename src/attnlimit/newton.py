"""Where is a convex function smallest? Newton's steps, shortened until the function falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array

SHORTEST = 1e-10
ENOUGH = 1e-4  # of the fall that the gradient promises


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where the descent stopped; `decrement` is twice the fall that one more step promised."""

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
        The largest share of a step, given x and the step, that may be taken; 1 by default.
    rounding : float
        Relative rounding error of `value`, by which it may fail to fall.
    floor : array or float
        The least curvature that is believed, in each variable.

    The descent stops short, without an error, after `steps` steps or where no length makes the
    value fall: look at `decrement`.
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
            if there <= here - ENOUGH * length * decrement + rounding * abs(here):
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
