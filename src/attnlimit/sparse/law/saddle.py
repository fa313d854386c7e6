"""The five self-consistent equations of a trained readout, solved on given feature points.

Unknowns: u (weight on the query), m (on the signal across it), b, W = |rest|^2 and chi. They are
the saddle point of the potential (docs/theory/sparse-readout.md)

    (ridge/2)(u^2 + m^2 + W) + E e(z0; chi rho^2) - W / (2 alpha chi),
    z0 = u k + m theta_perp c + b + rho r G,   r^2 = m^2 + W,

convex in (u, m, b), e being the Moreau envelope of the loss. Newton's method solves for (u, m, b)
inside, and the fixed-point loop for (log W, log chi) outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attnlimit.checks import Array
from attnlimit.sparse.law.features import FeaturePoints
from attnlimit.sparse.law.fixed_point import fixed_point
from attnlimit.sparse.losses import Loss

NEWTON_STEPS = 60
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
        return (
            at.query_weight * p.along
            + at.signal_weight * p.across
            + at.bias
            + at.noise_scale * p.rho * p.noise
        )

    def descend(self, at: Saddle) -> Saddle:
        """Minimise the potential over (u, m, b) at fixed (W, chi): Newton with backtracking."""
        p, gamma = self.points, at.chi * self.points.rho**2
        ridges = np.array([self.ridge, self.ridge, 0.0])
        value, gradient, hessian = self._local(at, gamma, ridges)
        columns = np.stack([p.along, p.across, np.ones_like(p.along)])
        spread = p.products(columns, np.ones_like(p.weight))
        # a loss with straight pieces can have no curvature at all far from the solution
        floor = 1e-12 * np.diag(spread) / (1 + p.mean(gamma)) + 1e-300
        for _ in range(NEWTON_STEPS):
            scale = np.sqrt(np.maximum(np.diag(hessian), floor))
            scaled = hessian / np.outer(scale, scale) + 1e-13 * np.eye(3)
            if not p.has_query:
                scaled[0] = scaled[:, 0] = 0.0
                scaled[0, 0] = 1.0
            step = -np.linalg.solve(scaled, gradient / scale) / scale
            decrement = -float(gradient @ step)
            largest = MAX_SHIFT * (1 + np.sqrt(p.mean(self.scores(at) ** 2)))
            length = min(1.0, largest / float(np.sqrt(step @ spread @ step) + 1e-300))
            while True:
                trial = replace(
                    at,
                    query_weight=at.query_weight + length * step[0],
                    signal_weight=at.signal_weight + length * step[1],
                    bias=at.bias + length * step[2],
                )
                new = self._local(trial, gamma, ridges)
                if new[0] <= value - 1e-4 * length * decrement + 1e-14 * abs(value):
                    break
                length /= 4
                if length < 1e-8:
                    return at
            at, (value, gradient, hessian) = trial, new
            if length == 1.0 and decrement <= 1e-13 * max(abs(value), 1e-300):
                break
        return at

    def _local(self, at: Saddle, gamma: Array, ridges: Array) -> tuple[float, Array, Array]:
        p, r = self.points, at.noise_scale
        z = self.scores(at)
        eta, slope, curvature = self.loss.envelope_slopes(z, gamma, p.label)
        envelope = self.loss.value(eta, p.label) + 0.5 * gamma * slope**2
        x = np.array([at.query_weight, at.signal_weight, at.bias])
        value = p.mean(envelope) + 0.5 * float(ridges @ x**2)
        lean = at.signal_weight / r
        columns = np.stack([p.along, p.across + lean * p.rho * p.noise, np.ones_like(z)])
        gradient = np.einsum("in,n->i", columns, p.weight * slope) + ridges * x
        hessian = p.products(columns, curvature) + np.diag(ridges)
        # r is a convex function of m: its own curvature, at.rest / r^3
        pull = max(0.0, p.mean(p.rho * p.noise * slope))
        hessian[1, 1] += pull * at.rest / r**3
        return value, gradient, hessian

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
        current = [start]

        def outer(x: Array) -> Array:
            at = self.descend(
                replace(current[0], rest=float(np.exp(x[0])), chi=float(np.exp(x[1])))
            )
            current[0] = at
            return np.log(np.maximum(self.update(at), 1e-300))

        found = fixed_point(
            outer, np.log([start.rest, start.chi]), tolerance=tolerance, max_steps=max_steps
        )
        at = self.descend(
            replace(current[0], rest=float(np.exp(found.x[0])), chi=float(np.exp(found.x[1])))
        )
        return replace(at, residual=found.residual, steps=found.steps, converged=found.converged)


def plain_start(points: FeaturePoints, ridge: float, ratio: float) -> Saddle:
    """Return a starting point that is right for a very large ridge."""
    size = points.mean(points.rho**2)
    stiffness = ridge + 0.25 * size
    return Saddle(0.0, 0.0, 0.0, 0.25 * size / (ratio * stiffness**2), 1 / (ratio * stiffness))
