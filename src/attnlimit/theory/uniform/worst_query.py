"""The query of a ball whose output fluctuates most for large n."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from attnlimit.checks import Array
from attnlimit.errors import NoLimitError
from attnlimit.head import Head
from attnlimit.tokens import Tokens

_DIRECTIONS = 8
_STARTS = 4
_POINTS_PER_BATCH = 64


@dataclass(frozen=True, eq=False)
class WorstQuery:
    """C(R) = sup over |x| <= R of sqrt(tr C(x)), where it is reached, and how fast it grows."""

    constant: float
    query: Array
    growth: float  # d log C / dR


def worst_query(head: Head, tokens: Tokens, radius: float) -> WorstQuery:
    """Maximise log tr C(x) over the ball: deterministic starts, then L-BFGS from the best few.

    The starts are the singular directions of the scores and of the limit's Jacobian; Gaussian
    tokens have the gradient in closed form, and their maximum is on the sphere |x| = R because
    tr C = e^{t'St} (tr VSV' + |VSt|^2) increases along rays.
    """
    objective = _Objective(head, tokens, radius)
    best_value, best_point = -np.inf, np.zeros(head.query_dim)
    directions = _directions(head, tokens)
    order = np.argsort(-objective.log_trace(radius * directions), kind="stable")
    for start in directions[order[:_STARTS]]:
        # x = R z / sqrt(1 + |z|^2) maps all of space to the open ball.
        climbed = minimize(objective.descend, 3 * start, jac=True, method="L-BFGS-B", tol=1e-10)
        for candidate in (objective.ball(climbed.x), objective.rim(climbed.x)):
            value = float(objective.log_trace(candidate[None])[0])
            if value > best_value:
                best_value, best_point = value, candidate
    norm = float(np.linalg.norm(best_point))
    slope = 0.0
    if norm > (1 - 1e-6) * radius:
        around = np.stack([best_point * (1 - 1e-5), best_point * (1 + 1e-5)])
        low, high = objective.log_trace(around)
        slope = float(high - low) / (2e-5 * norm) / 2
    constant = float(np.exp(best_value / 2)) if best_value < 1400 else np.inf
    return WorstQuery(constant if best_value > -600 else 0.0, best_point, slope)


def _directions(head: Head, tokens: Tokens) -> Array:
    scores = np.linalg.svd(tokens.sqrt_cov() @ head.A, full_matrices=False)[2]
    values = np.linalg.svd(head.V @ tokens.cov() @ head.A, full_matrices=False)[2]
    plain = np.linalg.svd(head.A, full_matrices=False)[2]
    diagonal = np.ones((1, head.query_dim)) / np.sqrt(head.query_dim)
    directions = np.concatenate([scores[:_DIRECTIONS], values[:2], plain[:2], diagonal])
    return np.concatenate([directions, -directions])


class _Objective:
    """log tr C(x) and its gradient, in closed form for Gaussian tokens, by differences else."""

    def __init__(self, head: Head, tokens: Tokens, radius: float) -> None:
        self.head, self.tokens, self.radius = head, tokens, radius
        self.gram = head.V.T @ head.V

    def ball(self, z: Array) -> Array:
        return self.radius * z / np.sqrt(1 + z @ z)

    def rim(self, z: Array) -> Array:
        return self.radius * z / max(float(np.linalg.norm(z)), 1e-300)

    def log_trace(self, x: Array) -> Array:
        values = np.empty(len(x))
        for start in range(0, len(x), _POINTS_PER_BATCH):
            part = slice(start, start + _POINTS_PER_BATCH)
            t = x[part] @ self.head.A.T
            try:
                crowding = self.tokens.cgf(2 * t) - 2 * self.tokens.cgf(t)
            except NoLimitError:
                return np.full(len(x), np.inf)
            shift = self.tokens.tilted_mean(2 * t) - self.tokens.tilted_mean(t)
            covs = self.tokens.tilted_cov(2 * t)
            energy = np.einsum("kij,ij->k", covs, self.gram)
            energy += ((shift @ self.head.V.T) ** 2).sum(axis=1)
            values[part] = crowding + np.log(np.maximum(energy, 1e-300))
        return values

    def gradient(self, x: Array) -> tuple[float, Array]:
        if self.tokens.is_gaussian:
            cov = self.tokens.cov()
            score = self.head.A.T @ cov @ self.head.A
            value = self.head.V @ cov @ self.head.A
            total = float(np.trace(self.gram @ cov)) + float(((value @ x) ** 2).sum())
            log_trace = float(x @ score @ x) + float(np.log(max(total, 1e-300)))
            return log_trace, 2 * score @ x + 2 * value.T @ (value @ x) / max(total, 1e-300)
        step = 1e-5 * self.radius
        shifts = step * np.eye(len(x))
        values = self.log_trace(np.concatenate([x[None], x + shifts, x - shifts]))
        return float(values[0]), (values[1 : len(x) + 1] - values[len(x) + 1 :]) / (2 * step)

    def descend(self, z: Array) -> tuple[float, Array]:
        value, gradient = self.gradient(self.ball(z))
        scale = np.sqrt(1 + z @ z)
        return -value, -self.radius * (gradient / scale - z * (gradient @ z) / scale**3)
