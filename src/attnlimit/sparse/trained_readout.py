"""Asymptotics of a readout trained on n = alpha d bags: errors, learning curves and capacity.

The capacity is the largest alpha at which n = alpha d bags are linearly separable in feature space
(docs/theory/sparse-capacity.md),

    1/alpha* = min over (u, m, b) of E[( sqrt(1 + m^2) G - y (u k + m theta_perp c + b)/rho )_+^2].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import norm

from attnlimit.checks import Array, not_negative, positive, real_array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.newton import descend
from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.sparse.losses import HardMargin, LossLike, SquareLoss, as_loss
from attnlimit.sparse.oracle import Number
from attnlimit.sparse.quadrature import FeaturePoints, feature_points
from attnlimit.sparse.saddle_point import Saddle, SaddleSystem, plain_start
from attnlimit.sparse.task import SparseTask
from attnlimit.threads import small_matrices

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

    def to_frame(self) -> pd.DataFrame:
        """One row: the setting and alpha_star."""
        query = {"cosine": self.cosine, "sharpness": self.sharpness, "alpha_star": self.value}
        return pd.DataFrame([{"model": self.model, **asdict(self.task), **query}])

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


@small_matrices()
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
    >>> from attnlimit.sparse import SparseTask, capacity
    >>> round(capacity(SparseTask(6, 1, 2.0), cosine=0.7, sharpness=1.0).value, 1)
    2.4
    >>> round(capacity(SparseTask(strength=0.0), "pooled").value, 6)  # Cover: two bags a parameter
    2.0
    """
    points = feature_points(task, model, cosine, sharpness, log2_points)
    minimum = descend(
        lambda x: _potential(points, x)[0],
        lambda x: _potential(points, x)[1:],
        np.zeros(3),
        tolerance=TOLERANCE,
        steps=NEWTON_STEPS,
    )
    decrement = minimum.decrement / minimum.value
    if decrement > TOLERANCE:
        raise NotConverged(
            f"the capacity's minimisation stopped at a relative decrement of {decrement:.2g}; "
            "change the strength slightly.",
            reached=decrement,
        )
    query = (float(cosine), float(sharpness)) if model == "attention" else (np.nan, np.nan)
    value = points.dimension / minimum.value
    return Capacity(value, task, model, *query)


COARSE, FINE = 9, 13
"""Base-2 logarithms of the points in each class: to find the solution, and to refine it."""


@dataclass(frozen=True, kw_only=True)
class Readout(Saddle, Result, Pictured):
    """What training the readout gives in the limit n, d -> infinity at n = alpha d.

    With the order parameters: the weights on the query and on the signal across it, the bias,
    `rest` (the squared norm of all other weights) and chi.
    """

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

    @property
    def norm(self) -> float:
        """|w|, the norm of the readout."""
        return float(np.hypot(self.query_weight, self.noise_scale))

    def to_frame(self) -> pd.DataFrame:
        """One row with every number, the order parameters last."""
        solved = {field.name: getattr(self, field.name) for field in fields(Saddle)}
        rest = {name: value for name, value in vars(self).items() if name not in solved}
        return pd.DataFrame([rest | solved]).drop(columns="task")

    def panel(self) -> Panel:
        """Densities of the prediction, by class; what is on the wrong side of 0 is the test error.

        Given what attention makes of a bag its prediction is normal, so each is a mixture of
        normals.
        """
        points = feature_points(self.task, self.model, self.cosine, self.sharpness, COARSE)
        centre = points.label * points.margins(*self.weights)
        spread = points.rho * self.noise_scale
        ends = np.quantile(centre - 4 * spread, 0.01), np.quantile(centre + 4 * spread, 0.99)
        grid, series = np.linspace(*ends, 301), []
        for label, name in ((1.0, "positive bags"), (-1.0, "negative bags")):
            rows = points.label == label
            share, mean, noise = points.weight[rows], centre[rows], spread[rows]
            heights = norm.pdf((grid[:, None] - mean) / noise) @ (share / noise)
            series.append(Series(grid, heights, "line", name, name))
        top = max(float(np.max(line.y)) for line in series)
        edge = Series([0.0, 0.0], [0.0, top], "dotted", "decision", REFERENCE)
        title, x = f"test error {self.test_error:.3g}", "prediction on a fresh bag"
        return Panel(title, x, "density", [*series, edge], "linear", "linear")

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


@small_matrices()
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
        "logistic", "square" (half the squared error), "hinge" (smoothed), or a `sparse.Loss` of
        your own.
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
    >>> from attnlimit.sparse import SparseTask, readout
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
            effective, strength = SquareLoss(width=0.0), 1.0
    coarse = feature_points(task, model, cosine, sharpness, min(COARSE, log2_points))
    target = SaddleSystem(fine, effective, strength, ratio)
    solution = _solve(target, coarse, start)
    if not solution.converged:
        raise NotConverged(
            f"the readout equations did not converge at alpha {alpha:g}, ridge {ridge:g} "
            f"({model}, {chosen.name}): the residual is {solution.residual:.2g} after every "
            "continuation; raise the ridge or change alpha slightly.",
            reached=solution.residual,
        )
    return Readout(
        task=task,
        model=model,
        alpha=alpha,
        ridge=ridge,
        loss=chosen.name,
        cosine=cosine if model == "attention" else float("nan"),
        sharpness=sharpness if model == "attention" else float("nan"),
        **_trained(target, solution),
        **asdict(solution),
    )


def _solve(target: SaddleSystem, coarse: FeaturePoints, start: Readout | None) -> Saddle:
    """Direct solve on few points, then on all; continuation in the ridge where that fails."""
    if start is not None:
        solution = target.solve(start, max_steps=40)
        if solution.converged:
            return solution
    few = replace(target, points=coarse)
    rough = few.solve(plain_start(coarse, target.ridge, target.ratio), max_steps=60)
    if not rough.converged:
        rough = _continue_in_ridge(few, 10.0)
    solution = target.solve(rough, max_steps=80) if target.points is not coarse else rough
    for factor in (10.0, 2.0):
        if solution.converged:
            break
        solution = _continue_in_ridge(target, factor)
    return solution


def _continue_in_ridge(target: SaddleSystem, factor: float) -> Saddle:
    """Follow the solution from a large ridge down to the given one."""
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
    gamma = at.chi * points.rho**2
    eta = loss.prox(system.scores(at), gamma, points.label)
    margins = points.margins(*at.weights)
    norm = float(np.hypot(at.query_weight, at.noise_scale))
    train_loss = train_error = 0.0
    if not (isinstance(loss, HardMargin) or loss == SquareLoss(width=0.0)):  # a constraint
        train_loss = points.mean(loss.value(eta, points.label))
        # eta increases in z0, and the prox moves y z0 = gamma y loss'(0; y) to zero
        edge = gamma * points.label * loss.slope(np.zeros_like(gamma), points.label)
        train_error = points.mean(ndtr((edge - margins) / (points.rho * at.noise_scale)))
    return {
        "test_error": points.error(*at.weights, at.noise_scale),
        "train_loss": train_loss,
        "train_error": train_error,
        "train_margin": points.mean(points.label * eta) / norm,
        "test_margin": points.mean(margins) / norm,
    }


@dataclass(frozen=True)
class LearningCurve(Result, Pictured):
    """What training the readout gives at each of several numbers of bags."""

    readouts: tuple[Readout, ...]

    def __getitem__(self, index: int) -> Readout:
        return self.readouts[index]

    def __iter__(self) -> Iterator[Readout]:
        return iter(self.readouts)

    def __len__(self) -> int:
        return len(self.readouts)

    def headline(self) -> str:
        """Model, loss and ridge."""
        return f"{self[0].model} readout, {self[0].loss} loss, ridge {self[0].ridge:g}"

    def to_frame(self) -> pd.DataFrame:
        """One row for each alpha."""
        return pd.concat([result.to_frame() for result in self], ignore_index=True)

    def panel(self) -> Panel:
        """Test and training error against the number of bags per dimension."""
        model, alphas = self[0].model, [result.alpha for result in self]
        test = Series(
            alphas, [result.test_error for result in self], "line", f"{model}: test", model
        )
        train = [result.train_error for result in self]
        train_line = Series(alphas, train, "dotted", f"{model}: training", model)
        title, x_label = "learning curve", "bags per dimension α"
        return Panel(title, x_label, "error", [test, train_line], "log", "linear")


def learning_curve(
    task: SparseTask,
    alphas: Sequence[float] | Array,
    model: str = "attention",
    *,
    cosine: float = 1.0,
    sharpness: float = 1.0,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    log2_points: int = FINE,
) -> LearningCurve:
    """`readout` at every alpha, each started from its neighbour."""
    results: list[Readout] = []
    for alpha in real_array(alphas, "alphas", ndim=1):
        trained = readout(
            task,
            float(alpha),
            model,
            cosine=cosine,
            sharpness=sharpness,
            loss=loss,
            ridge=ridge,
            start=results[-1] if results else None,
            log2_points=log2_points,
        )
        results.append(trained)
    if not results:
        raise BadInput("alphas is empty; give at least one number of bags over the dimension.")
    return LearningCurve(tuple(results))
