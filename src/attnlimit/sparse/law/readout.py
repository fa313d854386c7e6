"""How well does a readout trained on n = alpha d bags classify the next bag: exact asymptotics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from attnlimit.checks import not_negative, positive
from attnlimit.errors import BadInput, NotConverged
from attnlimit.picture import Panel
from attnlimit.result import Pictured, Result
from attnlimit.sparse.law.capacity import capacity
from attnlimit.sparse.law.features import FeaturePoints, feature_points
from attnlimit.sparse.law.prediction import prediction_panel
from attnlimit.sparse.law.saddle import Saddle, SaddleSystem, plain_start
from attnlimit.sparse.losses import Function, HardMargin, Interpolation, Loss, as_loss
from attnlimit.sparse.task import SparseTask

COARSE, FINE = 9, 13
"""Base-2 logarithms of the points in each class: to find the solution, and to refine it."""
LossLike = str | Loss | tuple[Function, Function, Function]


@dataclass(frozen=True)
class Readout(Result, Pictured):
    """What training the readout gives in the limit n, d -> infinity at n = alpha d."""

    task: SparseTask
    model: str
    alpha: float
    ridge: float
    loss: str
    cosine: float
    sharpness: float
    test_error: float
    train_loss: float
    train_error: float
    train_margin: float
    """Mean of y times the prediction over the training set, divided by |w|."""
    test_margin: float
    """The same on fresh bags."""
    query_weight: float
    signal_weight: float
    bias: float
    rest: float
    chi: float
    residual: float
    steps: int
    converged: bool

    @property
    def norm(self) -> float:
        """|w|, the norm of the readout."""
        return float(np.sqrt(self.query_weight**2 + self.signal_weight**2 + self.rest))

    @property
    def solution(self) -> Saddle:
        """The order parameters, as the equations have them."""
        return Saddle(self.query_weight, self.signal_weight, self.bias, self.rest, self.chi)

    def to_frame(self) -> pd.DataFrame:
        """One row with every number."""
        return pd.DataFrame([{name: value for name, value in vars(self).items() if name != "task"}])

    def panel(self) -> Panel:
        """The law of the prediction on fresh bags; it decides by the sign."""
        points = feature_points(self.task, self.model, self.cosine, self.sharpness, COARSE)
        return prediction_panel(points, self.solution, f"test error {self.test_error:.3g}")

    def __str__(self) -> str:
        query = (
            f", query cosine {self.cosine:g}, sharpness {self.sharpness:g}"
            if self.model == "attention"
            else ""
        )
        return (
            f"{self.model} readout, {self.loss} loss, alpha {self.alpha:g}, "
            f"ridge {self.ridge:g}{query}\n"
            f"  test error   {self.test_error:.4f}\n"
            f"  train error  {self.train_error:.4f}\n"
            f"  train loss   {self.train_loss:.5g}\n"
            f"  mean margin  {self.train_margin:.4g} in training, {self.test_margin:.4g} on new\n"
            f"  solved to {self.residual:.1e} in {self.steps} steps"
        )


def readout(
    task: SparseTask,
    alpha: float,
    model: str = "attention",
    *,
    cosine: float = 1.0,
    sharpness: float = 1.0,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    start: Readout | None = None,
    log2_points: int = FINE,
) -> Readout:
    """Test error, training loss and training error of a ridge-regularised convex readout.

    The query is fixed, with `cosine` to the signal and `sharpness` = beta |q|; the readout (w, b)
    minimises (1/n) sum loss(<w, f_i> + b; y_i) + (ridge/2) |w|^2 over n = alpha d fresh bags.
    The answer is the limit d -> infinity (docs/theory/sparse-readout.md).

    Parameters
    ----------
    model
        "attention", "pooled" or "vectorized"; the last two ignore the query.
    loss
        "logistic", "square" (half the squared error), "hinge" (smoothed), a Loss, or a tuple of
        functions (value(z, y), slope(z, y), prox(z, gamma, y)).
    ridge
        From 1e-8 up, or exactly 0: then the least-norm interpolator (square loss, n below the
        number of parameters), the max-margin classifier (separable data), or the unregularised
        minimiser.
    start
        A readout nearby, to start from; `learning_curve` does this along alpha.
    log2_points
        Attention only: 2**log2_points quasi-random points in each class. At the default, 13, the
        test error moves by about 1e-4 when they are doubled.

    Raises
    ------
    NotConverged
        With the residual that was reached.

    Examples
    --------
    >>> r = readout(SparseTask(), 4.0, cosine=0.8, sharpness=1.0)
    >>> round(r.test_error, 3), r.converged
    (0.036, True)
    """
    alpha, ridge = positive(alpha, "alpha"), not_negative(ridge, "ridge")
    chosen = as_loss(loss)
    fine = feature_points(task, model, cosine, sharpness, log2_points)
    ratio = alpha / fine.dimension
    effective, strength = chosen, ridge
    if ridge == 0:
        # a constrained problem replaces the loss, and its norm is minimised with a unit ridge
        if chosen.separates:
            limit = capacity(task, model, cosine=cosine, sharpness=sharpness).value
            if abs(alpha / limit - 1) < 1e-3:
                raise NotConverged(
                    f"at ridge 0 and alpha {alpha:g}, within 0.1 % of the capacity {limit:g}, "
                    "the readout diverges; give a positive ridge or another alpha.",
                )
            if alpha < limit:
                effective, strength = HardMargin(), 1.0
        elif abs(ratio - 1) < 1e-6:
            raise NotConverged(
                f"at ridge 0 and alpha {alpha:g} there are as many bags as parameters and the "
                "least-squares readout diverges; give a positive ridge or another alpha."
            )
        elif ratio < 1:
            effective, strength = Interpolation(), 1.0
    coarse = feature_points(task, model, cosine, sharpness, min(COARSE, log2_points))
    target = SaddleSystem(fine, effective, strength, ratio)
    found = _solve(target, coarse, start)
    if not found.converged:
        raise NotConverged(
            f"the readout equations did not converge at alpha {alpha:g}, ridge {ridge:g} "
            f"({model}, {chosen.name}): the residual is {found.residual:.2g} after every "
            "continuation; raise the ridge or change alpha slightly.",
            reached=found.residual,
        )
    return Readout(
        task=task,
        model=model,
        alpha=alpha,
        ridge=ridge,
        loss=chosen.name,
        cosine=cosine if model == "attention" else float("nan"),
        sharpness=sharpness if model == "attention" else float("nan"),
        **_trained(target, found),
        **asdict(found),
    )


def _solve(target: SaddleSystem, coarse: FeaturePoints, start: Readout | None) -> Saddle:
    """Direct solve on few points, then on all; continuation in the ridge where that fails."""
    if start is not None:
        found = target.solve(start.solution, max_steps=40)
        if found.converged:
            return found
    few = replace(target, points=coarse)
    rough = few.solve(plain_start(coarse, target.ridge, target.ratio), max_steps=60)
    if not rough.converged:
        rough = _continue_in_ridge(few, 10.0)
    found = target.solve(rough, max_steps=80) if target.points is not coarse else rough
    for factor in (10.0, 2.0):
        if found.converged:
            break
        found = _continue_in_ridge(target, factor)
    return found


def _continue_in_ridge(target: SaddleSystem, factor: float) -> Saddle:
    """Follow the solution from a large ridge down to the one asked for."""
    high, low = max(10.0, 10 * target.ridge), max(target.ridge, 1e-9)
    steps = max(1, int(np.ceil(np.log(high / low) / np.log(factor))))
    ladder = np.geomspace(high, low, steps + 1)[1:]
    if target.ridge == 0:
        ladder = np.append(ladder, 0.0)
    at = plain_start(target.points, high, target.ratio)
    for value in ladder:
        at = replace(target, ridge=float(value)).solve(at)
    return at


def _trained(system: SaddleSystem, at: Saddle) -> dict[str, Any]:
    """Errors, loss and margins at a solution."""
    points, loss = system.points, system.loss
    weights = at.query_weight, at.signal_weight, at.bias
    gamma = at.chi * points.rho**2
    eta = loss.prox(system.scores(at), gamma, points.label)
    margins = points.margins(*weights)
    norm = float(np.hypot(at.query_weight, at.noise_scale))
    train_loss = train_error = 0.0
    if not isinstance(loss, (HardMargin, Interpolation)):
        train_loss = points.mean(loss.value(eta, points.label))
        # eta increases in z0, and the prox moves y z0 = gamma y loss'(0; y) to zero
        edge = gamma * points.label * loss.slope(np.zeros_like(gamma), points.label)
        train_error = points.mean(ndtr((edge - margins) / (points.rho * at.noise_scale)))
    return {
        "test_error": points.error(*weights, at.noise_scale),
        "train_loss": train_loss,
        "train_error": train_error,
        "train_margin": points.mean(points.label * eta) / norm,
        "test_margin": points.mean(margins) / norm,
    }


def transfer_error(trained: Readout, other: SparseTask) -> float:
    """Error of a trained readout on bags of an `other` task: longer ones, say.

    The query, the readout and its bias stay as they were; only the bags change.
    """
    if trained.model == "vectorized":
        raise BadInput("a vectorized classifier has one weight for each position: no other length.")
    points = feature_points(other, trained.model, trained.cosine, trained.sharpness, FINE)
    at = trained.solution
    return points.error(at.query_weight, at.signal_weight, at.bias, at.noise_scale)
