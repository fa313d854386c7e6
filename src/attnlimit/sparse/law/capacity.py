"""How many bags can a classifier separate perfectly: the capacity in the limit of many dimensions.

The largest alpha at which n = alpha d bags are linearly separable in feature space is
(docs/theory/sparse-capacity.md)

    1/alpha* = min over (u, m, b) of E[( sqrt(1 + m^2) G - y (u k + m theta_perp c + b)/rho )_+^2].
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from attnlimit.checks import Array
from attnlimit.errors import NotConverged
from attnlimit.newton import descend
from attnlimit.result import Result
from attnlimit.sparse.law.features import FeaturePoints, feature_points
from attnlimit.sparse.number import Number
from attnlimit.sparse.task import SparseTask

LOG2_POINTS = 14
NEWTON_STEPS = 200
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Capacity(Number, Result):
    """alpha*, the largest n/d at which bags are separable, and the setting it belongs to."""

    value: float
    task: SparseTask
    model: str
    cosine: float
    sharpness: float
    steps: int
    decrement: float
    """What another Newton step would change at most, relative to the value."""

    def to_frame(self) -> pd.DataFrame:
        """One row: the setting and alpha_star."""
        setting = asdict(self.task)
        del setting["positions"]
        query = {"cosine": self.cosine, "sharpness": self.sharpness}
        return pd.DataFrame([{"model": self.model, **setting, **query, "alpha_star": self.value}])

    def __str__(self) -> str:
        t = self.task
        query = f", query cosine {self.cosine:g}, sharpness {self.sharpness:g}"
        return (
            f"{self.model} separates {self.value:.6g} bags per dimension (L {t.length}, "
            f"R {t.signals}, strength {t.strength:g}, prior {t.prior:g}"
            f"{query if self.model == 'attention' else ''})"
        )


def _potential(points: FeaturePoints, x: Array) -> tuple[float, Array, Array]:
    """E(sigma G - t)_+^2 in (u, m, b), G integrated by hand; and its gradient and Hessian."""
    lift = points.label / points.rho
    columns = np.stack([points.along * lift, points.across * lift, lift])
    sigma = np.hypot(1.0, x[1])
    t = np.einsum("i,in->n", x, columns)
    ratio = t / sigma
    tail = ndtr(-ratio)
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    lean = np.array([0.0, x[1] / sigma, 0.0])
    in_sigma = points.mean(2 * sigma * tail)
    in_t = np.einsum("in,n->i", columns, points.weight * -2 * (sigma * density - t * tail))
    cross = np.outer(np.einsum("in,n->i", columns, points.weight * -2 * density), lean)
    hessian = points.products(columns, 2 * tail) + cross + cross.T
    hessian += np.outer(lean, lean) * points.mean(2 * (tail + ratio * density))
    hessian[1, 1] += in_sigma / sigma**3
    value = points.mean((sigma**2 + t**2) * tail - sigma * t * density)
    return value, in_t + lean * in_sigma, hessian


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
    >>> round(capacity(SparseTask(6, 1, 2.0), cosine=0.7, sharpness=1.0).value, 1)
    2.4
    >>> round(capacity(SparseTask(strength=0.0), "pooled").value, 6)  # Cover: two bags a parameter
    2.0
    """
    points = feature_points(task, model, cosine, sharpness, log2_points)
    found = descend(
        lambda x: _potential(points, x)[0],
        lambda x: _potential(points, x)[1:],
        np.zeros(3),
        tolerance=TOLERANCE,
        steps=NEWTON_STEPS,
    )
    decrement = found.decrement / found.value
    if decrement > TOLERANCE:
        raise NotConverged(
            f"the capacity's minimisation stopped at a relative decrement of {decrement:.2g}.",
            reached=decrement,
        )
    query = (float(cosine), float(sharpness)) if model == "attention" else (np.nan, np.nan)
    value = points.dimension / found.value
    return Capacity(value, task, model, *query, found.steps, decrement)
