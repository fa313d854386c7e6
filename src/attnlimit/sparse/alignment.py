"""How well do two gradient steps align the query with the hidden signal: exact, as d grows.

From zero, step 1 moves the readout (w, b) and step 2 moves the query q, both on the same
n0 = alpha0 d bags (docs/theory/sparse-alignment.md).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from attnlimit.checks import Array, positive, real_number
from attnlimit.errors import BadInput
from attnlimit.sparse.losses import Loss, as_loss
from attnlimit.sparse.readout import LossLike
from attnlimit.sparse.task import SparseTask

NODES = np.linspace(-9, 9, 2001)
NODE_WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


@dataclass(frozen=True)
class Alignment:
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
        """tau = beta |q|, what `readout` asks for."""
        return self.beta * self.norm

    def to_frame(self) -> pd.DataFrame:
        """One row with every field."""
        return pd.DataFrame([{**asdict(self), "sharpness": self.sharpness}])

    def __str__(self) -> str:
        turned = " (the steps turn the query AWAY from the signal)" if self.cosine < 0 else ""
        return (
            f"query after two steps on alpha0 = {self.alpha0:g} ({self.loss} loss, "
            f"lr_w {self.lr_w:g}, lr_b {self.lr_b:g}, lr_q {self.lr_q:g}, beta {self.beta:g})\n"
            f"  cosine     {self.cosine:.5f}{turned}\n"
            f"  norm       {self.norm:.5g}\n"
            f"  large alpha0: cosine = {self.sign:+d} * (1 - {self.constant:.4g}/alpha0)"
        )


@dataclass(frozen=True)
class _Slopes:
    mean: float
    """E h."""
    positive: float
    """E h 1[y = +1]."""
    square: float
    """E h^2."""
    square_positive: float
    """E h^2 1[y = +1]."""


def _slopes(
    task: SparseTask, loss: Loss, gain: float, width: float, memory: float, bias: float
) -> _Slopes:
    """Moments of h = loss'(z; y) for z the prediction of the first step's readout."""
    firsts, seconds = [], []
    for label in (1.0, -1.0):
        centre = gain * task.strength * task.signals / task.length * (label > 0)
        z = centre + memory * label + bias + width / np.sqrt(task.length) * NODES
        h: Array = loss.slope(z, np.full_like(z, label))
        firsts.append(float(NODE_WEIGHTS @ h))
        seconds.append(float(NODE_WEIGHTS @ h**2))
    p = task.prior
    return _Slopes(
        mean=p * firsts[0] + (1 - p) * firsts[1],
        positive=p * firsts[0],
        square=p * seconds[0] + (1 - p) * seconds[1],
        square_positive=p * seconds[0],
    )


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
    >>> round(query_alignment(SparseTask(), 2.0).cosine, 6)
    0.947565
    """
    alpha0 = positive(alpha0, "alpha0")
    rates = {
        name: positive(value, name)
        for name, value in (("lr_w", lr_w), ("lr_q", lr_q), ("beta", beta))
    }
    bias_rate = real_number(lr_b, "lr_b")
    if bias_rate < 0:
        raise BadInput(f"lr_b must not be negative, got {bias_rate}.")
    if task.strength == 0:
        raise BadInput("there is no signal to align with: strength is 0; give a positive strength.")
    chosen = as_loss(loss)
    pull = chosen.initial_pull
    length, signals, theta = task.length, task.signals, task.strength
    gain = rates["lr_w"] * pull * task.prior * theta * signals / length
    scatter = (rates["lr_w"] * pull) ** 2 / length
    bias = bias_rate * pull * (2 * task.prior - 1)
    kappa2 = theta**2 * signals * (1 - signals / length)
    others = length - 1

    def parts(inverse: float) -> tuple[float, float, float]:
        """<q, xi> and the two orthogonal variances over inverse = 1/alpha0, prefactor apart."""
        width2 = gain**2 + scatter * inverse
        memory = rates["lr_w"] * pull * inverse / length
        h = _slopes(task, chosen, gain, float(np.sqrt(width2)), memory, bias)
        overlap = -gain * (others * h.mean + kappa2 * h.positive)
        stray = others**2 * h.mean**2 * scatter
        noise = others * width2 * h.square + kappa2 * gain**2 * h.square_positive
        return overlap, stray, noise

    overlap, stray, noise = parts(1 / alpha0)
    norm = float(np.sqrt(overlap**2 + (stray + noise) / alpha0))
    if norm == 0:
        raise BadInput(
            f"the query does not move: bags of length {length} with {signals} signals have no "
            "contrast between tokens; attention needs length above 1."
        )
    limit_overlap, limit_stray, limit_noise = parts(0.0)
    scale = rates["lr_q"] * rates["beta"] / length
    return Alignment(
        alpha0=alpha0,
        loss=chosen.name,
        lr_w=rates["lr_w"],
        lr_b=bias_rate,
        lr_q=rates["lr_q"],
        beta=rates["beta"],
        cosine=overlap / norm,
        norm=scale * norm,
        constant=(
            (limit_stray + limit_noise) / (2 * limit_overlap**2) if limit_overlap else np.inf
        ),
        sign=1 if limit_overlap >= 0 else -1,
    )


def best_step_sizes(
    task: SparseTask,
    alpha0: float,
    loss: LossLike = "logistic",
    sharpness: float | None = None,
    beta: float = 1.0,
) -> Alignment:
    """Return the alignment at the (lr_w, lr_b) in [0.01, 100]^2 with the largest cosine.

    With `sharpness` given, lr_q is then chosen so that beta |q| equals it.
    """
    grid = [
        (query_alignment(task, alpha0, loss, lr_w, lr_b).cosine, lr_w, lr_b)
        for lr_w in np.geomspace(1e-2, 1e2, 17)
        for lr_b in (0.0, *np.geomspace(1e-2, 1e2, 9))
    ]
    _, lr_w, lr_b = max(grid)

    def loss_of(x: Array) -> float:
        sizes = np.exp(np.clip(x, *bounds))
        return -query_alignment(task, alpha0, loss, float(sizes[0]), float(sizes[1])).cosine

    bounds = np.log(1e-2), np.log(1e2)
    start = np.log([lr_w, max(lr_b, 1e-2)])
    found = minimize(loss_of, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-9})
    if -found.fun > max(grid)[0]:
        lr_w, lr_b = np.exp(np.clip(found.x, *bounds))
    result = query_alignment(task, alpha0, loss, float(lr_w), float(lr_b), 1.0, beta)
    if sharpness is None:
        return result
    lr_q = positive(sharpness, "sharpness") / result.sharpness
    return query_alignment(task, alpha0, loss, float(lr_w), float(lr_b), lr_q, beta)
