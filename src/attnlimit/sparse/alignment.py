"""Training in two stages: alignment of the query after two gradient steps, then the readout.

From zero, step 1 moves the readout (w, b) and step 2 moves the query q, both on the same
n0 = alpha0 d bags, in the limit of large d (docs/theory/sparse-alignment.md); a readout is then
trained on alpha1 d others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import expit

from attnlimit.checks import not_negative, positive
from attnlimit.errors import BadInput
from attnlimit.result import Result
from attnlimit.sparse.losses import Loss, LossLike, as_loss
from attnlimit.sparse.task import SparseTask, check_task
from attnlimit.sparse.trained_readout import FINE, Readout, readout
from attnlimit.threads import small_matrices

TIE = 1e-3
NODES = np.linspace(-9, 9, 1001)
NODE_WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


@dataclass(frozen=True)
class Alignment(Result):
    """The query after two gradient steps on alpha0 d bags."""

    alpha0: float
    loss: str
    lr_w: float
    lr_b: float
    lr_q: float
    beta: float
    cosine: float
    norm: float
    constant: float
    """C in cosine = sign * (1 - C/alpha0) + o(1/alpha0)."""
    sign: int
    """Sign of the cosine for large alpha0: -1 if the steps turn the query away."""

    @property
    def sharpness(self) -> float:
        """tau = beta |q|, the sharpness argument of `readout`."""
        return self.beta * self.norm

    def to_frame(self) -> pd.DataFrame:
        """One row with every field."""
        return pd.DataFrame([{**asdict(self), "sharpness": self.sharpness}])

    def headline(self) -> str:
        """The law for many bags, and whether the steps turn the query away."""
        law = f"{self.sign:+d} * (1 - {self.constant:.4g}/alpha0)"
        turned = "; the steps turn the query AWAY from the signal" if self.cosine < 0 else ""
        return f"query after two gradient steps; at large alpha0 its cosine is {law}{turned}"


@dataclass(frozen=True)
class _Steps:
    """The two steps' order parameters as functions of 1/alpha0, lr_q and beta apart."""

    task: SparseTask
    loss: Loss
    lr_w: float
    bias: float

    def query(self, inverse: float) -> tuple[float, float]:
        """<q, xi>, and alpha0 times the squared norm of the rest of q, at 1/alpha0 = inverse."""
        task, push = self.task, self.lr_w * self.loss.initial_pull
        length, signals, theta = task.length, task.signals, task.strength
        gain = push * task.prior * theta * signals / length
        scatter = push**2 / length
        kappa2 = theta**2 * signals * (1 - signals / length)
        width2 = gain**2 + scatter * inverse
        memory = push * inverse / length
        # E h 1[y] and E h^2 1[y], h = loss'(z; y) for z the prediction of the first step's readout
        first, second = [], []
        for label, prior in ((1.0, task.prior), (-1.0, 1 - task.prior)):
            centre = gain * theta * signals / length * (label > 0)
            z = centre + memory * label + self.bias + np.sqrt(width2) / np.sqrt(length) * NODES
            h = self.loss.slope(z, np.full_like(z, label))
            first.append(prior * float(NODE_WEIGHTS @ h))
            second.append(prior * float(NODE_WEIGHTS @ h**2))
        overlap = -gain * ((length - 1) * sum(first) + kappa2 * first[0])
        stray = (length - 1) ** 2 * sum(first) ** 2 * scatter
        noise = (length - 1) * width2 * sum(second) + kappa2 * gain**2 * second[0]
        return overlap, stray + noise

    def cosine(self, alpha0: float) -> float:
        """Cosine of the query with the signal."""
        overlap, rest = self.query(1 / alpha0)
        norm = np.sqrt(overlap**2 + rest / alpha0)
        return float(overlap / norm) if norm > 0 else 0.0


@small_matrices()
def query_alignment(
    task: SparseTask,
    alpha0: float,
    loss: LossLike = "logistic",
    lr_w: float = 1.0,
    lr_b: float = 1.0,
    lr_q: float = 1.0,
    beta: float = 1.0,
) -> Alignment:
    """Cosine to the signal, and norm, of the query after two gradient steps on alpha0 d bags.

    The limit d -> infinity, for any convex loss with -loss'(0; y) = c0 y and any prior. The cosine
    depends on lr_w and lr_b only; lr_q and beta scale the norm. It can be negative.

    Examples
    --------
    >>> from attnlimit.sparse import SparseTask, query_alignment
    >>> round(query_alignment(SparseTask(), 2.0).cosine, 6)
    0.947565
    """
    check_task(task)
    alpha0, lr_w = positive(alpha0, "alpha0"), positive(lr_w, "lr_w")
    lr_q, beta, lr_b = positive(lr_q, "lr_q"), positive(beta, "beta"), not_negative(lr_b, "lr_b")
    if task.strength == 0:
        raise BadInput("there is no signal to align with: strength is 0; give a positive strength.")
    chosen = as_loss(loss)
    steps = _Steps(task, chosen, lr_w, lr_b * chosen.initial_pull * (2 * task.prior - 1))
    overlap, rest = steps.query(1 / alpha0)
    norm = float(np.sqrt(overlap**2 + rest / alpha0))
    if norm == 0:
        raise BadInput(
            f"the query does not move: bags of length {task.length} with {task.signals} signals "
            "have no contrast between tokens; attention needs length above 1."
        )
    limit, limit_rest = steps.query(0.0)
    return Alignment(
        alpha0=alpha0,
        loss=chosen.name,
        lr_w=lr_w,
        lr_b=lr_b,
        lr_q=lr_q,
        beta=beta,
        cosine=overlap / norm,
        norm=lr_q * beta / task.length * norm,
        constant=limit_rest / (2 * limit**2) if limit else np.inf,
        sign=1 if limit >= 0 else -1,
    )


@small_matrices()
def best_step_sizes(
    task: SparseTask,
    alpha0: float,
    loss: LossLike = "logistic",
    beta: float = 1.0,
    dim: int | None = None,
) -> Alignment:
    """Return the alignment at the (lr_w, lr_b) with the largest cosine.

    A search over lr_w in [0.01, 100] and lr_b in {0} and [0.01, 100]; among those within 1e-3 of
    the largest cosine, the smallest lr_b is taken, and then the lr_w nearest to 1.

    In the limit the first step's bias follows the prior exactly; with n0 = alpha0 * `dim` bags it
    follows the labels that were drawn. Give `dim` to maximise the cosine at the worse end of two
    standard deviations of that bias instead of in the limit: a large lr_b is then no free gain.
    """
    alpha0 = positive(alpha0, "alpha0")
    query_alignment(task, alpha0, loss)  # raises where there is no alignment
    chosen = as_loss(loss)
    imbalance = 2 * task.prior - 1
    wander = 0.0
    if dim is not None:
        wander = 4 * np.sqrt(task.prior * (1 - task.prior) / (alpha0 * positive(dim, "dim")))

    def worst_cosine(lr_w: float, lr_b: float) -> float:
        ends = {imbalance - wander, imbalance, imbalance + wander}
        biases = [lr_b * chosen.initial_pull * end for end in ends]
        return min(_Steps(task, chosen, lr_w, bias).cosine(alpha0) for bias in biases)

    choices = [
        (worst_cosine(float(lr_w), float(lr_b)), float(lr_w), float(lr_b))
        for lr_w in np.geomspace(1e-2, 1e2, 25)
        for lr_b in (0.0, *np.geomspace(1e-2, 1e2, 13))
    ]
    best = max(choices)[0]
    near = [choice for choice in choices if choice[0] > best - TIE]
    _, lr_w, lr_b = min(near, key=lambda choice: (choice[2], abs(np.log(choice[1]))))
    return query_alignment(task, alpha0, loss, lr_w, lr_b, 1.0, beta)


SHARPNESSES = (0.5, 1.0, 2.0, 4.0, 8.0)
SEARCH_LOG2_POINTS = 10
COARSE = {"xatol": 0.1}


@dataclass(frozen=True)
class EndToEnd(Result):
    """The query's alignment from alpha0 d bags, and the readout trained on alpha1 d others."""

    alpha0: float
    alpha1: float
    alignment: Alignment
    readout: Readout

    @property
    def test_error(self) -> float:
        """Error on new bags after all four stages."""
        return self.readout.test_error

    @property
    def fraction(self) -> float:
        """Part of all labelled bags that goes to the query."""
        return self.alpha0 / (self.alpha0 + self.alpha1)

    def to_frame(self) -> pd.DataFrame:
        """One row: sizes, alignment and errors."""
        row = {"alpha": self.alpha0 + self.alpha1, "alpha0": self.alpha0, "alpha1": self.alpha1}
        query = ("lr_w", "lr_b", "lr_q", "cosine", "sharpness")
        row |= {name: getattr(self.alignment, name) for name in query}
        row |= {
            name: getattr(self.readout, name) for name in ("ridge", "test_error", "train_error")
        }
        return pd.DataFrame([row])

    def headline(self) -> str:
        """Bags for the query and for the readout, over the dimension."""
        return f"alpha0 {self.alpha0:.4g} for the query, alpha1 {self.alpha1:.4g} for the readout"


@small_matrices()
def end_to_end(
    task: SparseTask,
    alpha0: float,
    alpha1: float,
    *,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    lr_w: float | None = None,
    lr_b: float | None = None,
    lr_q: float = 1.0,
    beta: float = 1.0,
    sharpness: float | None = None,
    dim: int | None = None,
    log2_points: int = FINE,
) -> EndToEnd:
    """Predict the error of the four-stage protocol from its sample sizes and step sizes.

    Without lr_w and lr_b the ones of largest cosine are used, safe at dimension `dim` if given.
    `sharpness`, if given, replaces lr_q: the second step is scaled to reach beta |q| = sharpness.
    """
    if (lr_w is None) != (lr_b is None):
        raise BadInput("give both lr_w and lr_b, or neither to choose them automatically.")
    if lr_w is None or lr_b is None:
        chosen = best_step_sizes(task, alpha0, loss, beta=beta, dim=dim)
        lr_w, lr_b = chosen.lr_w, chosen.lr_b
    if sharpness is not None:
        unit = query_alignment(task, alpha0, loss, lr_w, lr_b, 1.0, beta)
        lr_q = positive(sharpness, "sharpness") / unit.sharpness
    aligned = query_alignment(task, alpha0, loss, lr_w, lr_b, lr_q, beta)
    cosine, tau = float(np.clip(aligned.cosine, -1, 1)), aligned.sharpness
    trained = readout(
        task, alpha1, cosine=cosine, sharpness=tau, loss=loss, ridge=ridge, log2_points=log2_points
    )
    return EndToEnd(aligned.alpha0, trained.alpha, aligned, trained)


@small_matrices()
def best_split(
    task: SparseTask,
    alpha: float,
    *,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    beta: float = 1.0,
    sharpness: float | None = None,
    dim: int | None = None,
) -> EndToEnd:
    """Split a budget of alpha d labelled bags between query and readout for the least error.

    The sharpness of the query is chosen too unless it is given.
    """
    alpha = positive(alpha, "alpha")
    choices = SHARPNESSES if sharpness is None else (positive(sharpness, "sharpness"),)

    protocol = partial(end_to_end, task, loss=loss, ridge=ridge, beta=beta, dim=dim)

    def split(logit: float, tau: float, points: int = SEARCH_LOG2_POINTS) -> EndToEnd:
        fraction = float(expit(logit))
        parts = alpha * fraction, alpha * (1 - fraction)
        return protocol(*parts, sharpness=tau, log2_points=points)

    def error(logit: float, tau: float) -> float:
        return split(float(logit), tau).test_error

    _, centre, tau = min((error(at, tau), at, tau) for at in (-2.0, 0.0) for tau in choices)
    ends = centre - 2.0, centre + 2.0
    best_fit = minimize_scalar(error, bounds=ends, args=(tau,), method="bounded", options=COARSE)
    return split(float(best_fit.x), tau, FINE)
