"""How well does a readout trained on n = alpha d bags classify the next bag: exact asymptotics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from attnlimit.checks import Array, positive, real_number
from attnlimit.errors import BadInput, NotConverged
from attnlimit.sparse.law.capacity import capacity
from attnlimit.sparse.law.features import FeaturePoints, feature_points
from attnlimit.sparse.law.saddle import Saddle, SaddleSystem, plain_start
from attnlimit.sparse.losses import Function, HardMargin, Interpolation, Loss, as_loss
from attnlimit.sparse.task import SparseTask

COARSE, FINE = 9, 13
"""Base-2 logarithms of the points in each class: to find the solution, and to refine it."""
LossLike = str | Loss | tuple[Function, Function, Function]


@dataclass(frozen=True)
class Readout:
    """What training the readout gives in the limit n, d -> infinity at n = alpha d."""

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

    def to_frame(self) -> pd.DataFrame:
        """One row with every field."""
        return pd.DataFrame([asdict(self)])

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
    start: Saddle | None = None,
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
        A solution nearby, to start from; `learning_curve` does this along alpha.
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
    alpha, ridge = positive(alpha, "alpha"), real_number(ridge, "ridge")
    if ridge < 0:
        raise BadInput(f"ridge must not be negative, got {ridge}.")
    chosen = as_loss(loss)
    fine = feature_points(task, model, cosine, sharpness, log2_points)
    ratio = alpha / fine.dimension
    effective, strength = chosen, ridge
    if ridge == 0:
        # a constrained problem replaces the loss, and its norm is minimised with a unit ridge
        if chosen.separates:
            limit = capacity(task, model, cosine=cosine, sharpness=sharpness)
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
    coarse = (
        feature_points(task, model, cosine, sharpness, min(COARSE, log2_points))
        if model == "attention"
        else fine
    )
    found = _solve(coarse, fine, effective, strength, ratio, start)
    if not found.converged:
        raise NotConverged(
            f"the readout equations did not converge at alpha {alpha:g}, ridge {ridge:g} "
            f"({model}, {chosen.name}): the residual is {found.residual:.2g} after every "
            "continuation; raise the ridge or change alpha slightly.",
            reached=found.residual,
        )
    return _describe(
        fine, effective, found, chosen.name, model, alpha, ridge, strength, ratio, cosine, sharpness
    )


def _solve(
    coarse: FeaturePoints,
    fine: FeaturePoints,
    loss: Loss,
    ridge: float,
    ratio: float,
    start: Saddle | None,
) -> Saddle:
    """Direct solve on few points, then on all; continuation in the ridge where that fails."""
    target = SaddleSystem(fine, loss, ridge, ratio)
    if start is not None:
        found = target.solve(start, max_steps=40)
        if found.converged:
            return found
    rough = SaddleSystem(coarse, loss, ridge, ratio).solve(
        plain_start(coarse, ridge, ratio), max_steps=60
    )
    if not rough.converged:
        rough = _continue_in_ridge(coarse, loss, ridge, ratio, 10.0)
    found = target.solve(rough, max_steps=80) if fine is not coarse else rough
    for factor in (10.0, 2.0):
        if found.converged:
            break
        found = _continue_in_ridge(fine, loss, ridge, ratio, factor)
    return found


def _continue_in_ridge(
    points: FeaturePoints, loss: Loss, ridge: float, ratio: float, factor: float
) -> Saddle:
    """Follow the solution from a large ridge down to the one asked for."""
    steps = max(1, int(np.ceil(np.log(max(10.0, 10 * ridge) / max(ridge, 1e-9)) / np.log(factor))))
    ladder = np.geomspace(max(10.0, 10 * ridge), max(ridge, 1e-9), steps + 1)[1:]
    if ridge == 0:
        ladder = np.append(ladder, 0.0)
    at = plain_start(points, max(10.0, 10 * ridge), ratio)
    for value in ladder:
        at = SaddleSystem(points, loss, float(value), ratio).solve(at)
    return at


def _describe(
    points: FeaturePoints,
    loss: Loss,
    at: Saddle,
    loss_name: str,
    model: str,
    alpha: float,
    ridge: float,
    strength: float,
    ratio: float,
    cosine: float,
    sharpness: float,
) -> Readout:
    system = SaddleSystem(points, loss, strength, ratio)
    eta = loss.prox(system.scores(at), at.chi * points.rho**2, points.label)
    mean = points.label * (
        at.query_weight * points.along + at.signal_weight * points.across + at.bias
    )
    norm = float(np.sqrt(at.query_weight**2 + at.signal_weight**2 + at.rest))
    constrained = isinstance(loss, (HardMargin, Interpolation))
    train_loss = 0.0 if constrained else points.mean(loss.value(eta, points.label))
    return Readout(
        model=model,
        alpha=alpha,
        ridge=ridge,
        loss=loss_name,
        cosine=cosine if model == "attention" else float("nan"),
        sharpness=sharpness if model == "attention" else float("nan"),
        test_error=points.mean(ndtr(-mean / (points.rho * at.noise_scale))),
        train_loss=train_loss,
        train_error=train_error(points, loss, system, at),
        train_margin=points.mean(points.label * eta) / norm,
        test_margin=points.mean(mean) / norm,
        query_weight=at.query_weight,
        signal_weight=at.signal_weight,
        bias=at.bias,
        rest=at.rest,
        chi=at.chi,
        residual=at.residual,
        steps=at.steps,
        converged=at.converged,
    )


def train_error(points: FeaturePoints, loss: Loss, system: SaddleSystem, at: Saddle) -> float:
    """P(y eta < 0): eta is increasing in z0, so this is a normal probability at every point.

    y eta < 0 exactly when y z0 < gamma * y loss'(0; y): the prox moves that point to zero.
    """
    if isinstance(loss, (HardMargin, Interpolation)):
        return 0.0
    gamma = at.chi * points.rho**2
    edge = gamma * points.label * loss.slope(np.zeros_like(gamma), points.label)
    mean = points.label * (
        at.query_weight * points.along + at.signal_weight * points.across + at.bias
    )
    return points.mean(ndtr((edge - mean) / (points.rho * at.noise_scale)))


def transfer_error(trained: Readout, other: SparseTask) -> float:
    """Error of a trained readout on bags of another task: longer ones, say.

    The query, the readout and its bias stay as they were; only the bags change.
    """
    if trained.model == "vectorized":
        raise BadInput("a vectorized classifier has one weight for each position: no other length.")
    points = feature_points(other, trained.model, trained.cosine, trained.sharpness, FINE)
    mean = (
        trained.query_weight * points.along + trained.signal_weight * points.across + trained.bias
    )
    scale = float(np.hypot(trained.signal_weight, np.sqrt(trained.rest)))
    return points.mean(ndtr(-points.label * mean / (points.rho * scale)))


def learning_curve(
    task: SparseTask, alphas: Sequence[float] | Array, model: str = "attention", **options: object
) -> list[Readout]:
    """`readout` at every alpha, each started from its neighbour."""
    results: list[Readout] = []
    start: Saddle | None = None
    for alpha in alphas:
        result = readout(task, float(alpha), model, start=start, **options)  # type: ignore[arg-type]
        results.append(result)
        start = Saddle(
            result.query_weight, result.signal_weight, result.bias, result.rest, result.chi
        )
    return results
