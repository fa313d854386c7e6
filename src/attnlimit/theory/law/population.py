"""What does attention over n keys give at every query of a finite population? Exact, batched.

The law of docs/theory/exact-law.md with sums over the N tokens of a document in place of
expectations, for many queries at once: one sweep over alpha = -log t serves every query and n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import (
    check_weights,
    edge_weights,
    lowest_alpha,
    meeting,
    times_between,
)
from attnlimit.theory.law.sampled import BLOCK, checked

STEP = 0.55
"""Step in alpha; the trapezoid rule errs by about 1e-7 of the result."""

TOLERANCE = 1e-4
"""How far from one the weights may sum in float32; beyond it, float64 takes over."""

_MARGIN = 6.5
_DECAY = 13.0
_PROBES = 64
_SINGLE_RANGE = 60.0
_SINGLE_COUNT = 4096


@dataclass(frozen=True, eq=False)
class PopulationLaw:
    """Error of attention over n keys drawn with replacement, at each of R queries."""

    n: NDArray[np.int64]
    mse: Array  # (R, len(n))            E |Gamma_n - Gamma|^2
    participation: Array  # (R, len(n))  E sum_i p_i^2
    bias: Array | None  # (R, len(n), d_v)  E Gamma_n - Gamma, on request
    output: Array  # (R, d_v)  Gamma
    check: float  # largest distance of the normalisation from one


def population_law(
    scores: ArrayLike | Tensor, values: ArrayLike | Tensor, n: ArrayLike, *, bias: bool = False
) -> PopulationLaw:
    """Exact law of attention over `n` keys drawn with replacement from those a query sees.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of R queries on N keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    n : sequence of int
        Numbers of keys drawn, each at least 2.
    """
    counts = np.unique(np.atleast_1d(checks.token_counts(n)))
    asked = np.atleast_1d(np.asarray(n, dtype=np.int64))
    rows, points = checked(scores, values)
    seen = torch.isfinite(rows).sum(1)
    shift = torch.logsumexp(rows, 1) - torch.log(seen)  # log-mean-exp over the visible keys
    relative = rows - shift[:, None]
    step = max(1, len(rows) // _PROBES)
    low = _lowest_alpha(relative[::step], seen[::step], int(counts[0]))
    single = rows.dtype == torch.float32 and low > -_SINGLE_RANGE and counts[-1] <= _SINGLE_COUNT
    law = _sweep(
        relative, points, seen, counts, low, bias, torch.float32 if single else torch.float64
    )
    if law.check > TOLERANCE:  # a query between the probes reaches further, or digits ran out
        low = _lowest_alpha(relative, seen, int(counts[0])) - 2.0
        law = _sweep(relative, points, seen, counts, low, bias, torch.float64)
    check_weights(np.array(1 + law.check), TOLERANCE)
    if np.array_equal(counts, asked):
        return law
    order = np.searchsorted(counts, asked)
    shift_at = None if law.bias is None else law.bias[:, order]
    return replace(
        law, n=asked, mse=law.mse[:, order], participation=law.participation[:, order],
        bias=shift_at,
    )  # fmt: skip


def _lowest_alpha(relative: Tensor, seen: Tensor, fewest: int) -> float:
    """Largest t needed, as alpha: beyond it phi^(n-2), or every w^2 e^-w, is negligible."""
    finite = relative.masked_fill(relative == -torch.inf, torch.inf)
    bottom = float(finite.min()) - np.log(30.0)
    if fewest <= 2:
        return bottom
    below = np.exp(-_DECAY / (fewest - 2))  # the largest phi whose power is negligible
    if below < 1e-3:
        return bottom
    probe = relative.double()
    hidden = probe.shape[1] - seen  # an invisible key counts as one in the sum

    def negligible(alpha: float) -> bool:
        decay = torch.exp(-torch.exp((probe - alpha).clamp_max(50.0)))
        return float(((decay.sum(1) - hidden) / seen).max()) < below

    return lowest_alpha(negligible, float(probe.max()), bottom)


def _sweep(
    relative: Tensor,
    points: Tensor,
    seen: Tensor,
    counts: NDArray[np.int64],
    low: float,
    bias: bool,
    dtype: torch.dtype,
) -> PopulationLaw:
    # Beyond this t, both n keys and the strongest one weigh next to nothing.
    high = max(float(np.log(counts[-1])), float(relative.max())) + _MARGIN
    times = times_between(high, low, STEP)
    values = points.to(dtype)
    values = torch.cat([values - values.mean(0), torch.ones(len(values), 1, dtype=dtype)], dim=1)
    size = max(1, BLOCK // relative.shape[1])
    parts = [
        _block(relative[i : i + size].to(dtype), values, seen[i : i + size], counts, times, bias)
        for i in range(0, len(relative), size)
    ]
    mse, participation, total, shifted, output = (
        torch.cat(tensors) for tensors in zip(*parts, strict=True)
    )
    return PopulationLaw(
        n=counts,
        mse=mse.numpy(),
        participation=participation.numpy(),
        bias=shifted.numpy() if bias else None,
        output=(output.double() + points.double().mean(0)).numpy(),
        check=float(np.abs(total.numpy() - 1).max()),
    )


def _block(
    relative: Tensor,
    values: Tensor,
    seen: Tensor,
    counts: NDArray[np.int64],
    times: Array,
    bias: bool,
) -> tuple[Tensor, ...]:
    """Sums over alpha for a block of queries; `values` carry a last column of ones."""
    ratio = torch.exp(relative)  # e^s over its mean
    output = (ratio @ values[:, :-1]) / ratio.sum(1, keepdim=True)
    distance = torch.cdist(output, values[:, :-1], compute_mode="donot_use_mm_for_euclid_dist")
    distance.square_()
    negative = -ratio
    hidden = (relative.shape[1] - seen)[:, None]
    phi, linear, square, spread = [], [], [], []
    for t in times:
        minus_w = negative * t
        weight = torch.exp(minus_w)
        phi.append(weight.sum(1))
        weight *= minus_w
        linear.append(weight @ values)
        weight *= minus_w
        square.append(weight.sum(1))
        spread.append(torch.einsum("rk,rk->r", weight, distance))
    share = 1.0 / seen.double()[:, None]
    log_phi = torch.log(((torch.stack(phi, 1).double() - hidden) * share).clamp(1e-300, 1.0))
    moments = torch.stack(linear, 1).double() * -share[..., None]  # (R, J, d_v + 1)
    mass = moments[..., -1]
    moments = moments[..., :-1] - mass[..., None] * output.double()[:, None]
    square_mean = torch.stack(square, 1).double() * share
    spread_mean = torch.stack(spread, 1).double() * share
    pull = moments.square().sum(-1)
    edges = torch.from_numpy(edge_weights(len(times), STEP))
    mse, participation, total, shifted = [], [], [], []
    for n in counts.tolist():
        once, twice = (meeting(log_phi, n, k, STEP) for k in (1, 2))
        mse.append((once * spread_mean + twice * pull).sum(1))
        participation.append((once * square_mean).sum(1))
        total.append((once * mass) @ edges)
        if bias:
            shifted.append(torch.einsum("rj,rjv->rv", once, moments))
    empty = torch.zeros(len(relative), 0)
    return (
        torch.stack(mse, 1),
        torch.stack(participation, 1),
        torch.stack(total, 1),
        torch.stack(shifted, 1) if bias else empty,
        output,
    )
