"""Fit a ridge-regularised convex readout to given features: Newton's method, any loss here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from attnlimit.checks import Array, positive, real_array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.sparse.law.readout import LossLike
from attnlimit.sparse.losses import Loss, as_loss

MAX_STEPS = 200


@dataclass(frozen=True, eq=False)
class LinearReadout:
    """A trained readout: sign(<weights, f> + bias)."""

    weights: Array
    bias: float
    train_loss: float
    train_error: float
    steps: int

    def __call__(self, features: Array) -> Array:
        """Predictions <w, f> + b."""
        return features @ self.weights + self.bias


def fit_readout(
    features: Array, labels: Array, loss: LossLike = "logistic", ridge: float = 1e-2
) -> LinearReadout:
    """Minimise (1/n) sum loss(<w, f_i> + b; y_i) + (ridge/2) |w|^2 over (w, b).

    With fewer samples than features the problem is solved in the span of the samples.
    """
    chosen = as_loss(loss)
    ridge = positive(ridge, "ridge")
    F = real_array(features, "features", ndim=2)
    y = real_array(labels, "labels", ndim=1)
    if len(F) != len(y):
        raise BadInput(f"features and labels must be as many, got {len(F)} and {len(y)}.")
    if set(np.unique(y)) != {-1.0, 1.0}:
        raise BadInput(
            f"labels must be -1 and +1, both present, got {sorted(set(y.tolist()))[:4]}; "
            "a classifier needs bags of both classes."
        )
    n, p = F.shape
    if p <= n:
        return _newton(F, y, chosen, ridge)
    gram = F @ F.T
    gram[np.diag_indices(n)] += 1e-12 * np.trace(gram) / n
    lower = np.linalg.cholesky(gram)
    reduced = _newton(lower, y, chosen, ridge)
    coefficients = solve_triangular(lower, reduced.weights, lower=True, trans="T")
    return LinearReadout(
        F.T @ coefficients, reduced.bias, reduced.train_loss, reduced.train_error, reduced.steps
    )


def _newton(F: Array, y: Array, loss: Loss, ridge: float) -> LinearReadout:
    n, p = F.shape
    A = np.concatenate([F, np.ones((n, 1))], axis=1)
    ridges = np.append(np.full(p, ridge), 0.0)
    x = np.zeros(p + 1)
    z = A @ x
    # a small step along the prox gives the curvature of any loss, kinks included
    gamma = np.full(n, 1e-6)

    def objective(z: Array, x: Array) -> float:
        return float(loss.value(z, y).mean() + 0.5 * ridges @ x**2)

    value = objective(z, x)
    steps = 0
    while steps < MAX_STEPS:
        steps += 1
        gradient = A.T @ loss.slope(z, y) / n + ridges * x
        _, _, curvature = loss.envelope_slopes(z, gamma, y)
        scaled = A * np.sqrt(curvature / n)[:, None]
        hessian = scaled.T @ scaled
        hessian[np.diag_indices(p + 1)] += ridges + 1e-12
        # where the loss is straight only this floor keeps the bias from running away
        hessian[-1, -1] = max(hessian[-1, -1], 1e-8)
        step = -cho_solve(cho_factor(hessian, overwrite_a=True), gradient)
        decrement = -float(gradient @ step)
        move = A @ step
        length = min(1.0, 10 * (1 + np.abs(z).max()) / (np.abs(move).max() + 1e-300))
        while length > 1e-10:
            new_value = objective(z + length * move, x + length * step)
            if new_value <= value - 1e-4 * length * decrement:
                break
            length /= 2
        else:
            length = 0.0
        x, z = x + length * step, z + length * move
        value = min(value, new_value)
        if decrement < 1e-11 * value or length == 0.0:
            break
    if decrement > 1e-6 * value:
        raise NotConverged(
            f"the readout's training stopped at a relative decrement of {decrement / value:.2g}.",
            reached=decrement / value,
        )
    return LinearReadout(
        x[:-1],
        float(x[-1]),
        float(loss.value(z, y).mean()),
        float(np.mean(y * z <= 0)),
        steps,
    )
