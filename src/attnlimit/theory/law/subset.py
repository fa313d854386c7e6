"""Sampling without replacement: the exact error of attention over m distinct keys and a kept set.

A uniform subset of m of the R keys that are not kept is independent keeping, conditioned on its
size. With z = e^{i theta} marking each sampled key, E[f; size = m] is an average of e^{-im theta}
E[f z^size] over the circle, and each of these is the product law of `attnlimit.theory.law.kept`
with p e^{-w} replaced by p z e^{-w} (docs/theory/schemes.md).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import binom
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput, NotConverged
from attnlimit.theory.law.kept import STEP, TOLERANCE, SchemeError

_MARGIN = 9.5
_DEPTH = 30.0
_SPREAD = 9.0


def subset_law(
    scores: ArrayLike | Tensor,
    values: ArrayLike | Tensor,
    size: int,
    kept: ArrayLike | Tensor | None = None,
    *,
    weighted: bool = False,
) -> SchemeError:
    """Error of attention over the kept keys and `size` distinct others, for each query.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of R queries on N keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    size : int
        Keys sampled among those visible and not kept; all of them where there are fewer.
    kept : (N,) or (R, N) boolean array, optional
        Keys kept for sure; none by default.
    weighted : bool
        Whether sampled keys are weighted by the inverse of their chance.
    """
    rows = torch.as_tensor(scores).double()
    points = torch.as_tensor(values).double()
    if rows.dim() != 2 or points.dim() != 2 or rows.shape[1] != points.shape[0]:
        raise BadInput(
            "scores must be (queries, keys) and values (keys, d_v), "
            f"got {tuple(rows.shape)} and {tuple(points.shape)}."
        )
    if torch.isnan(rows).any() or (rows == torch.inf).any() or not torch.isfinite(points).all():
        raise BadInput("scores or values contain NaN or infinite numbers; remove them first.")
    count = checks.count(size, "size", smallest=0)
    sure = torch.zeros(rows.shape, dtype=torch.bool)
    if kept is not None:
        sure = torch.as_tensor(kept, dtype=torch.bool).expand(rows.shape)
    visible = rows > -torch.inf
    if not visible.any(1).all() or (count == 0 and not (sure & visible).any(1).all()):
        raise BadInput("a query keeps no key at all; leave it out or sample some.")
    parts = [
        _query(row[seen], points[seen], mine[seen], count, weighted)
        for row, seen, mine in zip(rows, visible, sure, strict=True)
    ]
    mse, bias, participation, kept_count, output, check = zip(*parts, strict=True)
    if not max(check) <= TOLERANCE:
        raise NotConverged(
            f"the subset law's quadrature is off: its weights miss one by {max(check):.2g}.",
            reached=max(check),
        )
    return SchemeError(
        np.array(mse), np.stack(bias), np.array(participation), np.array(kept_count),
        np.stack(output), weighted,
    )  # fmt: skip


def _query(
    scores: Tensor, values: Tensor, sure: Tensor, count: int, weighted: bool
) -> tuple[float, np.ndarray, float, float, np.ndarray, float]:
    output = torch.softmax(scores, 0) @ values
    rest = int((~sure).sum())
    sample = min(count, rest)
    chance = sample / rest if rest else 0.0
    if chance in (0.0, 1.0):  # nothing is random
        weights = torch.softmax(scores.masked_fill(~sure & (chance == 0.0), -torch.inf), 0)
        error = weights @ values - output
        total = float(sure.sum()) + sample
        spread = float(weights.square().sum())
        return float(error @ error), error.numpy(), spread, total, output.numpy(), 0.0
    keep = torch.where(sure, 1.0, chance).double()
    log_weight = scores - torch.log(keep) if weighted else scores
    cost = torch.exp(log_weight - torch.logsumexp(log_weight + torch.log(keep), 0))
    times = torch.exp(-_alphas(cost, keep))
    deviation = np.sqrt(rest * chance * (1 - chance))
    nodes = min(rest + 1, 2 * int(np.ceil(_SPREAD * deviation / 2)) + 8)
    circle = torch.exp(2j * torch.pi * torch.arange(nodes // 2 + 1, dtype=torch.double) / nodes)
    fold = torch.full((len(circle),), 2.0, dtype=torch.double)
    fold[0] = 1.0
    if nodes % 2 == 0:
        fold[-1] = 1.0
    fold = fold / (nodes * binom.pmf(sample, rest, chance))
    shift = values - output
    energy = shift.square().sum(1)
    marks = torch.where(sure[None, :], torch.ones(1, dtype=circle.dtype), circle[:, None])
    turn = circle.conj() ** sample * fold
    mse = participation = total = 0.0
    bias = torch.zeros_like(output)
    complex_shift = shift.to(circle.dtype)
    # Before the first node the integrands that are linear in t go on as a geometric series.
    edges = [1 + 1 / float(np.expm1(STEP))] + [1.0] * (len(times) - 1)
    for t, edge in zip(times, edges, strict=True):
        w = cost * t
        alive = (keep * torch.exp(-w)) * marks  # p z e^-w
        factor = (1 - keep) + alive
        # The magnitude in logarithms and the phase as a product: neither over- nor underflows.
        magnitude = torch.log(factor.abs().clamp_min(1e-300)).sum(1)
        phase = torch.angle(factor).sum(1)
        chance_here = torch.polar(torch.exp(magnitude), phase) * turn * STEP
        ratio = torch.where(sure[None, :], torch.ones(1, dtype=circle.dtype), alive / factor)
        first = ratio * w
        pull = first @ complex_shift
        second = first * w - first * first
        inner = second @ energy.to(circle.dtype) + (pull * pull).sum(1)
        mse += float((chance_here * inner).real.sum())
        participation += float((chance_here * (first * w).sum(1)).real.sum())
        bias += edge * (chance_here[:, None] * pull).real.sum(0)
        total += edge * float((chance_here * first.sum(1)).real.sum())
    kept_count = float(sure.sum()) + sample
    return mse, bias.numpy(), participation, kept_count, output.numpy(), abs(total - 1)


def _alphas(cost: Tensor, keep: Tensor) -> Tensor:
    """Nodes of alpha, down to where even the smallest likely denominator has decayed."""
    alpha = 0.0
    while alpha > -700:
        survive = torch.expm1(-(cost * float(np.exp(-alpha)))).mul_(keep)
        if float(torch.log1p(survive.clamp_min(-1 + 1e-16)).sum()) < -_DEPTH:
            break
        if float((cost * float(np.exp(-alpha))).min()) > _DEPTH:
            break
        alpha -= 1.0
    return torch.arange(_MARGIN, alpha - STEP, -STEP, dtype=torch.double)
