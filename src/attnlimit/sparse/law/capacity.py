"""How many bags can a classifier separate perfectly: the capacity in the limit of many dimensions.

The largest alpha at which n = alpha d bags are linearly separable in feature space is
(docs/theory/sparse-capacity.md)

    1/alpha* = min over (u, m, b) of E[( sqrt(1 + m^2) G - y (u k + m theta_perp c + b)/rho )_+^2].
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtr

from attnlimit.checks import Array
from attnlimit.errors import NotConverged
from attnlimit.sparse.law.features import FeaturePoints, feature_points
from attnlimit.sparse.task import SparseTask

LOG2_POINTS = 14
NEWTON_STEPS = 200


class Capacity(float):
    """alpha*, as a number, with the setting it belongs to."""

    task: SparseTask
    model: str
    cosine: float
    sharpness: float
    steps: int
    decrement: float

    @property
    def alpha_star(self) -> float:
        """The number itself."""
        return float(self)

    def to_frame(self) -> pd.DataFrame:
        """One row: the setting and alpha_star."""
        row = {
            "model": self.model,
            "length": self.task.length,
            "signals": self.task.signals,
            "strength": self.task.strength,
            "prior": self.task.prior,
            "cosine": self.cosine,
            "sharpness": self.sharpness,
            "alpha_star": float(self),
        }
        return pd.DataFrame([row])

    def __str__(self) -> str:
        return f"{float(self):.6g}"


def _potential(points: FeaturePoints, x: Array) -> tuple[float, Array, Array]:
    """Value, gradient and Hessian of E(sigma G - t)_+^2 in (u, m, b), G integrated by hand."""
    lift = points.label / points.rho
    columns = np.stack([points.along * lift, points.across * lift, lift])
    sigma = np.hypot(1.0, x[1])
    t = np.einsum("i,in->n", x, columns)
    ratio = t / sigma
    tail = ndtr(-ratio)
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    w = points.weight
    value = points.mean((sigma**2 + t**2) * tail - sigma * t * density)
    slope_t = -2 * (sigma * density - t * tail)
    slope_sigma = 2 * sigma * tail
    cross = np.einsum("in,n->i", columns, w * -2 * density)
    lean = np.array([0.0, x[1] / sigma, 0.0])
    total_sigma = points.mean(slope_sigma)
    gradient = np.einsum("in,n->i", columns, w * slope_t) + lean * total_sigma
    hessian = points.products(columns, 2 * tail)
    hessian += np.outer(cross, lean) + np.outer(lean, cross)
    hessian += np.outer(lean, lean) * points.mean(2 * (tail + ratio * density))
    hessian[1, 1] += total_sigma / sigma**3
    return value, gradient, hessian


def _minimise(points: FeaturePoints) -> tuple[float, float, int]:
    x = np.zeros(3)
    value, gradient, hessian = _potential(points, x)
    decrement = np.inf
    for step_number in range(1, NEWTON_STEPS + 1):
        scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
        scaled = hessian / np.outer(scale, scale) + 1e-12 * np.eye(3)
        if not points.has_query:
            scaled[0] = scaled[:, 0] = 0.0
            scaled[0, 0] = 1.0
        step = -np.linalg.solve(scaled, gradient / scale) / scale
        decrement = -float(gradient @ step)
        if decrement < 1e-9 * value:
            return value, decrement, step_number
        length = 1.0
        while length > 1e-10:
            new = _potential(points, x + length * step)
            if new[0] <= value - 1e-4 * length * decrement:
                break
            length /= 2
        else:
            break
        x = x + length * step
        value, gradient, hessian = new
    raise NotConverged(
        f"the capacity's minimisation stopped at a relative decrement of {decrement / value:.2g}.",
        reached=decrement / value,
    )


def capacity(
    task: SparseTask,
    model: str = "attention",
    *,
    cosine: float = 1.0,
    sharpness: float = 1.0,
    log2_points: int = LOG2_POINTS,
) -> Capacity:
    """Return alpha*, the largest n/d at which random bags are still separable by the readout.

    The query is fixed, with `cosine` to the signal and `sharpness` = beta |q|; "pooled" and
    "vectorized" ignore both. A convex problem in three variables, by Newton's method.

    Examples
    --------
    >>> round(capacity(SparseTask(6, 1, 2.0), cosine=0.7, sharpness=1.0), 1)
    2.4
    >>> round(capacity(SparseTask(strength=0.0), "pooled"), 6)  # Cover: two bags a parameter
    2.0
    """
    points = feature_points(task, model, cosine, sharpness, log2_points)
    if not points.has_query:
        points = _one_per_class(points)
    value, decrement, steps = _minimise(points)
    result = Capacity(points.dimension / value)
    result.task, result.model = task, model
    result.cosine = float(cosine) if model == "attention" else float("nan")
    result.sharpness = float(sharpness) if model == "attention" else float("nan")
    result.steps, result.decrement = steps, decrement
    return result


def _one_per_class(points: FeaturePoints) -> FeaturePoints:
    """Drop the noise nodes, which the closed form does not need."""
    ends = [0, len(points.label) - 1]
    prior = float(points.weight[points.label > 0].sum())
    return FeaturePoints(
        weight=np.array([prior, 1 - prior]),
        label=points.label[ends],
        along=points.along[ends],
        across=points.across[ends],
        rho=points.rho[ends],
        noise=np.zeros(2),
        dimension=points.dimension,
        has_query=False,
    )
