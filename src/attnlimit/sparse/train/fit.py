"""Fit a ridge-regularised convex readout to given features: Newton's method, any loss here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from attnlimit.checks import Array, positive, real_array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.newton import descend
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
        return _fit(F, y, chosen, ridge)
    gram = F @ F.T
    gram[np.diag_indices(n)] += 1e-12 * np.trace(gram) / n
    lower = np.asarray(np.linalg.cholesky(gram), dtype=np.float64)
    reduced = _fit(lower, y, chosen, ridge)
    coefficients = solve_triangular(lower, reduced.weights, lower=True, trans="T")
    return replace(reduced, weights=F.T @ coefficients)


def _fit(F: Array, y: Array, loss: Loss, ridge: float) -> LinearReadout:
    n, p = F.shape
    A = np.concatenate([F, np.ones((n, 1))], axis=1)
    ridges = np.append(np.full(p, ridge), 0.0)
    # a small step along the prox gives the curvature of any loss, kinks included
    gamma = np.full(n, 1e-6)

    def objective(x: Array) -> float:
        return float(loss.value(A @ x, y).mean() + 0.5 * ridges @ x**2)

    def slopes(x: Array) -> tuple[Array, Array]:
        z = A @ x
        _, _, curvature = loss.envelope_slopes(z, gamma, y)
        scaled = A * np.sqrt(curvature / n)[:, None]
        hessian = scaled.T @ scaled + np.diag(ridges)
        # where the loss is straight only this floor keeps the bias from running away
        hessian[-1, -1] = max(hessian[-1, -1], 1e-8)
        return A.T @ loss.slope(z, y) / n + ridges * x, hessian

    def longest(x: Array, move: Array) -> float:
        return float(10 * (1 + np.abs(A @ x).max()) / (np.abs(A @ move).max() + 1e-300))

    start = np.zeros(p + 1)
    found = descend(
        objective, slopes, start, tolerance=1e-18, steps=MAX_STEPS, longest=longest, rounding=1e-15
    )
    decrement = found.decrement / found.value
    if decrement > 1e-6:
        raise NotConverged(
            f"the readout's training stopped at a relative decrement of {decrement:.2g}.",
            reached=decrement,
        )
    z = A @ found.x
    return LinearReadout(
        found.x[:-1],
        float(found.x[-1]),
        float(loss.value(z, y).mean()),
        float(np.mean(y * z <= 0)),
        found.steps,
    )
