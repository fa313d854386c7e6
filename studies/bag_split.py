"""A budget of labelled bags split between query and readout.

The query is aligned by two gradient steps on alpha0 d bags (docs/theory/sparse-alignment.md), the
readout trained on alpha1 d others (docs/theory/sparse-readout.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import expit

from attnlimit.checks import positive
from attnlimit.errors import BadInput
from attnlimit.result import Result
from attnlimit.sparse.alignment import Alignment, best_step_sizes, query_alignment
from attnlimit.sparse.losses import LossLike
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import FINE, Readout, readout
from attnlimit.threads import small_matrices

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
