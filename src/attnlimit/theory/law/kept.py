"""Keep some keys, sample the rest: the exact error of any such scheme, before it is run.

Key j is kept independently with probability p_j, with score weight e^{s_j} / p_j (weighted: the
denominator is unbiased) or e^{s_j}; p_j = 1 for a sink, a window or a top key. With c_j that
weight, w_j = t c_j and r_j = p_j e^{-w_j} / (1 - p_j + p_j e^{-w_j}), exactly

    E Gamma~ - Gamma     = int sum_j c_j u_j r_j P(t) dt,   P(t) = prod_j (1 - p_j + p_j e^{-w_j}),
    E |Gamma~ - Gamma|^2 = int t [ sum_j c_j^2 |u_j|^2 r_j (1-r_j) + |sum_j c_j u_j r_j|^2 ] P dt

(docs/theory/schemes.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.head import Head
from attnlimit.theory.limit import check_match
from attnlimit.tokens import Empirical, Tokens

STEP = 0.5
TOLERANCE = 1e-4
_MARGIN = 9.5
_DEPTH = 30.0
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class SchemeError:
    """Error of attention over the keys that a scheme keeps, at each query."""

    mse: Array  # (m,)  E |Gamma~ - Gamma|^2
    bias: Array  # (m, d_v)  E Gamma~ - Gamma
    participation: Array  # (m,)  E sum_i p_i^2 of the weights used
    kept: Array  # (m,)  expected number of keys kept
    output: Array  # (m, d_v)  Gamma, over all keys
    weighted: bool

    @property
    def relative(self) -> Array:
        """Root mean square error over the size of the output."""
        return np.sqrt(self.mse) / np.linalg.norm(self.output, axis=1)

    def to_frame(self) -> pd.DataFrame:
        """One row for each query."""
        return pd.DataFrame(
            {
                "query": np.arange(len(self.mse)),
                "kept": self.kept,
                "mse": self.mse,
                "relative": self.relative,
                "bias_norm": np.linalg.norm(self.bias, axis=1),
                "participation": self.participation,
            }
        )

    def __str__(self) -> str:
        kind = "weighted" if self.weighted else "unweighted"
        return f"keep some, sample the rest ({kind}, exact)\n" + self.to_frame().to_string(
            index=False, float_format=lambda v: f"{v:.5g}", max_rows=40
        )


def kept_error(
    head: Head, tokens: Tokens, x: ArrayLike, probabilities: ArrayLike, *, weighted: bool = True
) -> SchemeError:
    """Exact error of attention when each of finitely many tokens is kept with a probability.

    Parameters
    ----------
    tokens : Empirical
        The keys; their weights count as multiplicities.
    x : (m, d) array
        Queries.
    probabilities : (N,) or (m, N) array
        Probability that each key is kept, for all queries or for each. At least one must be 1
        at every query: with nothing kept there is no attention.
    weighted : bool
        Whether a kept key's weight is divided by its probability (an unbiased denominator).
    """
    check_match(head, tokens)
    if not isinstance(tokens, Empirical):
        raise BadInput(f"kept_error needs finitely many tokens (al.Empirical), got {tokens!r}.")
    tilts = np.atleast_2d(head.tilts(x))
    with np.errstate(divide="ignore"):
        scores = tilts @ tokens.locations.T + np.log(tokens.weights)
    return kept_law(scores, tokens.locations @ head.V.T, probabilities, weighted=weighted)


def kept_law(
    scores: ArrayLike | Tensor,
    values: ArrayLike | Tensor,
    probabilities: ArrayLike | Tensor,
    *,
    weighted: bool = True,
) -> SchemeError:
    """Error of a scheme for many queries at once, from their scores (R, N) and the values (N, d_v).

    `probabilities` is (N,) or (R, N); keys with score -inf are not visible and never kept.
    """
    rows = torch.as_tensor(scores).double()
    points = torch.as_tensor(values).double()
    keep = torch.as_tensor(probabilities).double()
    _check(rows, points, keep)
    keep = keep.expand(rows.shape).masked_fill(rows == -torch.inf, 0.0)
    if not (keep == 1).any(1).all():
        raise BadInput(
            "at every query at least one visible key must be kept for sure (probability 1): "
            "with nothing kept there is no attention."
        )
    size = max(1, _BLOCK // rows.shape[1])
    parts = [
        _block(rows[i : i + size], points, keep[i : i + size], weighted)
        for i in range(0, len(rows), size)
    ]
    mse, bias, participation, output, check = (
        torch.cat(tensors).numpy() for tensors in zip(*parts, strict=True)
    )
    if not check.max() <= TOLERANCE:
        raise NotConverged(
            f"the scheme's quadrature is off: its weights miss one by {check.max():.2g}.",
            reached=float(check.max()),
        )
    return SchemeError(mse, bias, participation, keep.sum(1).numpy(), output, weighted)


def _check(rows: Tensor, points: Tensor, keep: Tensor) -> None:
    if rows.dim() != 2 or points.dim() != 2 or rows.shape[1] != points.shape[0]:
        raise BadInput(
            "scores must be (queries, keys) and values (keys, d_v), "
            f"got {tuple(rows.shape)} and {tuple(points.shape)}."
        )
    if tuple(keep.shape) not in (tuple(rows.shape), (rows.shape[1],)):
        raise BadInput(
            f"probabilities must have shape {(rows.shape[1],)} or {tuple(rows.shape)}, "
            f"got {tuple(keep.shape)}."
        )
    if not ((keep >= 0) & (keep <= 1)).all():
        raise BadInput("probabilities must lie between 0 and 1.")
    if torch.isnan(rows).any() or (rows == torch.inf).any() or not torch.isfinite(points).all():
        raise BadInput("scores or values contain NaN or infinite numbers; remove them first.")


def _block(
    scores: Tensor, values: Tensor, keep: Tensor, weighted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    output = torch.softmax(scores, 1) @ values
    distance = torch.cdist(output, values, compute_mode="donot_use_mm_for_euclid_dist").square_()
    log_weight = scores.clone()
    if weighted:
        log_weight -= torch.log(keep)
    log_weight.masked_fill_(keep == 0, -torch.inf)
    # Divide by the expected denominator, so that all queries share their range of t.
    centre = torch.logsumexp(log_weight + torch.log(keep), 1, keepdim=True)
    cost = torch.exp(log_weight - centre)
    bottom = _lowest_alpha(cost, keep)
    shape = (len(scores),)
    mse, participation, total = (torch.zeros(shape, dtype=torch.double) for _ in range(3))
    bias = torch.zeros_like(output)
    ones = torch.ones(len(values), 1, dtype=torch.double)
    extended = torch.cat([values, ones], dim=1)
    # Before the first node the integrands that are linear in t go on as a geometric series.
    edge = 1 + 1 / float(np.expm1(STEP))
    for alpha in np.arange(_MARGIN, bottom - STEP, -STEP):
        w = cost * float(np.exp(-alpha))
        survive = torch.expm1(-w).mul_(keep)  # p (e^-w - 1)
        chance = STEP * torch.exp(torch.log1p(survive).sum(1))
        ratio = (survive + keep) / (1 + survive).clamp_min(1e-300)
        ratio.masked_fill_(keep == 1, 1.0)
        first = w * ratio
        sums = first @ extended
        pull = sums[:, :-1] - sums[:, -1:] * output
        second = first * w
        mse += chance * (((second - first * first) * distance).sum(1) + pull.square().sum(1))
        bias += edge * chance[:, None] * pull
        participation += chance * second.sum(1)
        total += edge * chance * sums[:, -1]
        edge = 1.0
    return mse, bias, participation, output, (total - 1).abs()


def _lowest_alpha(cost: Tensor, keep: Tensor) -> float:
    """Largest t at which P(t) still counts, as alpha."""
    alpha = 0.0
    while alpha > -700:
        survive = torch.expm1(-(cost * float(np.exp(-alpha)))).mul_(keep)
        if float(torch.log1p(survive).sum(1).max()) < -_DEPTH:
            break
        alpha -= 2.0
    return alpha


def keep_probabilities(kept: Array, sample: float) -> Array:
    """Probability 1 for the kept keys and an equal one for the rest, `sample` of them expected.

    `kept` is boolean, (N,) or (m, N).
    """
    chosen = np.asarray(kept, dtype=bool)
    expected = checks.real_number(sample, "sample")
    if expected < 0:
        raise BadInput(f"sample must not be negative, got {expected:g}.")
    rest = np.maximum((~chosen).sum(axis=-1, keepdims=True), 1)
    return np.where(chosen, 1.0, np.minimum(expected / rest, 1.0))
