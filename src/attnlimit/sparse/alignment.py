"""Alignment of the query with the signal after two gradient steps.

From zero, step 1 moves the readout (w, b) and step 2 moves the query q, both on the same
n0 = alpha0 d bags, in the limit of large d (docs/theory/sparse-alignment.md).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from attnlimit.checks import not_negative, positive
from attnlimit.errors import BadInput
from attnlimit.result import Result
from attnlimit.sparse.losses import Loss, LossLike, as_loss
from attnlimit.sparse.task import SparseTask, check_task
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
