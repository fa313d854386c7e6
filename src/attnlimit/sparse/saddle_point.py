"""Self-consistent equations of a trained readout, solved on given feature points.

Unknowns: u (weight on the query), m (on the signal across it), b, W = |rest|^2 and chi. They are
the saddle point of the potential (docs/theory/sparse-readout.md)

    (ridge/2)(u^2 + m^2 + W) + E e(z0; chi rho^2) - W / (2 alpha chi),
    z0 = u k + m theta_perp c + b + rho r G,   r^2 = m^2 + W,

convex in (u, m, b), e being the Moreau envelope of the loss. Newton's method solves for (u, m, b)
inside, and an accelerated fixed-point iteration for (log W, log chi) outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from attnlimit.checks import Array
from attnlimit.newton import descend
from attnlimit.sparse.losses import Loss
from attnlimit.sparse.quadrature import FeaturePoints


def fixed_point(
    g: Callable[[Array], Array],
    start: Array,
    tolerance: float = 1e-9,
    max_steps: int = 200,
    memory: int = 4,
    max_move: float = 3.0,
) -> tuple[Array, float, int]:
    """Solve x = g(x) by Anderson acceleration (type II), each move capped at `max_move`.

    Returns the best x, the largest |g(x) - x| there and the number of steps. The history is dropped
    whenever an accelerated step makes the residual ten times worse, so that the loop falls back on
    plain iteration instead of diverging.
    """
    x = np.asarray(start, dtype=float)
    history: list[tuple[Array, Array]] = []
    best_x, best = x, np.inf
    for step in range(1, max_steps + 1):
        f = g(x) - x
        size = float(np.max(np.abs(f)))
        if size < best:
            best_x, best = x, size
        if size < tolerance or not np.isfinite(size):
            return best_x, best, step
        if history and size > 10 * np.max(np.abs(history[-1][1])):
            history = []
        history = [*history, (x, f)][-memory - 1 :]
        dx, df = (np.diff(np.stack(part, 1)) for part in zip(*history, strict=True))
        mix = np.linalg.lstsq(df, f, rcond=1e-10)[0]
        move = f - (dx + df) @ mix
        x = x + move * min(1.0, max_move / max(float(np.max(np.abs(move))), 1e-300))
    return best_x, best, max_steps


NEWTON_STEPS = 60
TOLERANCE = 1e-20
"""Of the decrement: the weights are then exact to 1e-10, as the outer loop needs."""
MAX_SHIFT = 10.0
"""Largest root-mean-square change of the predictions in one Newton step, relative to them."""


@dataclass(frozen=True)
class Saddle:
    """A solution (or the best point reached) of the five equations."""

    query_weight: float
    signal_weight: float
    bias: float
    rest: float
    chi: float
    residual: float = np.inf
    steps: int = 0
    converged: bool = False

    @property
    def weights(self) -> tuple[float, float, float]:
        """u, m and b."""
        return self.query_weight, self.signal_weight, self.bias

    @property
    def noise_scale(self) -> float:
        """r = sqrt(m^2 + W), the norm of the readout orthogonal to the query."""
        return float(np.hypot(self.signal_weight, np.sqrt(self.rest)))


@dataclass(frozen=True, eq=False)
class SaddleSystem:
    """The equations for one loss, ridge and sample ratio (samples over parameters)."""

    points: FeaturePoints
    loss: Loss
    ridge: float
    ratio: float

    def scores(self, at: Saddle) -> Array:
        """z0, the prediction on a bag not in the training set, at every point."""
        p = self.points
        centre = at.query_weight * p.along + at.signal_weight * p.across + at.bias
        return centre + at.noise_scale * p.rho * p.noise

    def descend(self, at: Saddle) -> Saddle:
        """Minimise the potential over (u, m, b) at fixed (W, chi)."""
        p, gamma = self.points, at.chi * self.points.rho**2
        columns = np.stack([p.along, p.across, np.ones_like(p.along)])
        spread = p.products(columns, np.ones_like(p.weight))
        # a loss with straight pieces can have no curvature at all far from the solution
        floor = 1e-12 * np.diag(spread) / (1 + p.mean(gamma)) + 1e-300

        @lru_cache(maxsize=2)
        def potential(u: float, m: float, b: float) -> tuple[float, Array, Array]:
            return self._potential(replace(at, query_weight=u, signal_weight=m, bias=b), gamma)

        def longest(x: Array, move: Array) -> float:
            predictions = np.einsum("i,in->n", x, columns)
            largest = MAX_SHIFT * (1 + np.sqrt(p.mean(predictions**2)))
            return float(largest / (np.sqrt(move @ spread @ move) + 1e-300))

        minimum = descend(
            lambda x: potential(*x)[0],
            lambda x: potential(*x)[1:],
            np.array(at.weights),
            tolerance=TOLERANCE,
            steps=NEWTON_STEPS,
            longest=longest,
            rounding=1e-14,
            floor=floor,
        )
        u, m, b = minimum.x.tolist()
        return replace(at, query_weight=u, signal_weight=m, bias=b)

    def _potential(self, at: Saddle, gamma: Array) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian in (u, m, b)."""
        p, r = self.points, at.noise_scale
        x = np.array(at.weights)
        ridges = np.array([self.ridge, self.ridge, 0.0])
        eta, slope, curvature = self.loss.envelope_slopes(self.scores(at), gamma, p.label)
        envelope = self.loss.value(eta, p.label) + 0.5 * gamma * slope**2
        lean = at.signal_weight / r
        columns = np.stack([p.along, p.across + lean * p.rho * p.noise, np.ones_like(eta)])
        gradient = np.einsum("in,n->i", columns, p.weight * slope) + ridges * x
        hessian = p.products(columns, curvature) + np.diag(ridges)
        # r is a convex function of m: its own curvature, at.rest / r^3
        hessian[1, 1] += max(0.0, p.mean(p.rho * p.noise * slope)) * at.rest / r**3
        return p.mean(envelope) + 0.5 * float(ridges @ x**2), gradient, hessian

    def update(self, at: Saddle) -> tuple[float, float]:
        """The right-hand sides of W = ... and chi = ... ."""
        p = self.points
        _, slope, curvature = self.loss.envelope_slopes(self.scores(at), at.chi * p.rho**2, p.label)
        stiffness = self.ridge + (
            p.mean(p.rho**2 * curvature) if self.loss.smooth else self._response(at, slope)
        )
        pushed = p.mean((p.rho * slope) ** 2)
        return pushed / (self.ratio * stiffness**2), 1 / (self.ratio * stiffness)

    def _response(self, at: Saddle, slope: Array) -> float:
        """E[rho^2 envelope''] by Stein's identity, E[rho G envelope'] / r.

        Continuous in the unknowns where the envelope has a kink. What the slope is without noise
        is subtracted, which changes nothing in expectation and removes most of the error.
        """
        p, r = self.points, at.noise_scale
        centre = self.scores(at) - r * p.rho * p.noise
        _, base, _ = self.loss.envelope_slopes(centre, at.chi * p.rho**2, p.label)
        return max(0.0, p.mean(p.rho * p.noise * (slope - base))) / r

    def solve(self, start: Saddle, tolerance: float = 1e-8, max_steps: int = 150) -> Saddle:
        """Iterate to a residual below `tolerance` in (log W, log chi), from `start`."""
        at = Saddle(*start.weights, start.rest, start.chi)

        def inner(x: Array) -> Saddle:
            nonlocal at
            rest, chi = np.exp(x).tolist()
            at = self.descend(replace(at, rest=rest, chi=chi))
            return at

        def outer(x: Array) -> Array:
            return np.log(np.maximum(self.update(inner(x)), 1e-300))

        logs = np.log([start.rest, start.chi])
        solution, residual, steps = fixed_point(outer, logs, tolerance, max_steps)
        inner(solution)
        return replace(at, residual=residual, steps=steps, converged=residual < tolerance)


def plain_start(points: FeaturePoints, ridge: float, ratio: float) -> Saddle:
    """Return a starting point that is right for a very large ridge."""
    size = points.mean(points.rho**2)
    stiffness = ridge + 0.25 * size
    return Saddle(0.0, 0.0, 0.0, 0.25 * size / (ratio * stiffness**2), 1 / (ratio * stiffness))
