"""What does attention over n keys give at every query of a finite population? Exact, batched.

The law of docs/theory/exact-law.md with sums over the N tokens of a document in place of
expectations, for many queries at once: one sweep over alpha = -log t serves every query and n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NotConverged

STEP = 0.55
"""Step in alpha; the trapezoid rule errs by about 1e-7 of the result."""

TOLERANCE = 1e-4
"""How far from one the weights may sum in float32; beyond it, float64 takes over."""

_MARGIN = 6.5
_DECAY = 13.0
_PROBES = 64
_BLOCK = 1 << 16
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
    rows, points = torch.as_tensor(scores), torch.as_tensor(values)
    _check(rows, points)
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
    if not law.check <= TOLERANCE:
        raise NotConverged(
            f"the exact law's quadrature is off: its weights miss one by {law.check:.2g}.",
            reached=law.check,
        )
    if len(counts) == len(asked) and (counts == asked).all():
        return law
    order = np.searchsorted(counts, asked)
    return PopulationLaw(
        asked,
        law.mse[:, order],
        law.participation[:, order],
        None if law.bias is None else law.bias[:, order],
        law.output,
        law.check,
    )


def _check(rows: Tensor, points: Tensor) -> None:
    if rows.dim() != 2 or points.dim() != 2 or rows.shape[1] != points.shape[0]:
        raise BadInput(
            "scores must be (queries, keys) and values (keys, d_v), "
            f"got {tuple(rows.shape)} and {tuple(points.shape)}."
        )
    if torch.isnan(rows).any() or (rows == torch.inf).any() or not torch.isfinite(points).all():
        raise BadInput("scores or values contain NaN or infinite numbers; remove them first.")
    if not torch.isfinite(rows).any(1).all():
        raise BadInput("a query sees no key at all; leave it out.")


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
    alpha = float(probe.max())
    while alpha > bottom:
        decay = torch.exp(-torch.exp((probe - alpha).clamp_max(50.0)))
        phi = (decay.sum(1) - hidden) / seen
        if float(phi.max()) < below:
            return max(alpha, bottom)
        alpha -= 1.0
    return bottom


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
    times = np.exp(-np.arange(high, low - STEP, -STEP))
    values = points.to(dtype)
    values = torch.cat([values - values.mean(0), torch.ones(len(values), 1, dtype=dtype)], dim=1)
    size = max(1, _BLOCK // relative.shape[1])
    parts = [
        _block(relative[i : i + size].to(dtype), values, seen[i : i + size], counts, times, bias)
        for i in range(0, len(relative), size)
    ]
    mse, participation, total, shifted, output = (
        torch.cat(tensors) for tensors in zip(*parts, strict=True)
    )
    # Beyond the last node the integrand of the normalisation is n e^-alpha.
    tail = counts * times[0] * STEP / np.expm1(STEP)
    return PopulationLaw(
        n=counts,
        mse=mse.numpy(),
        participation=participation.numpy(),
        bias=shifted.numpy() if bias else None,
        output=(output.double() + points.double().mean(0)).numpy(),
        check=float(np.abs(total.numpy() + tail - 1).max()),
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
    mse, participation, total, shifted = [], [], [], []
    for n in counts.tolist():
        once = STEP * n * torch.exp((n - 1) * log_phi)
        twice = STEP * n * (n - 1) * torch.exp((n - 2) * log_phi)
        mse.append((once * spread_mean + twice * pull).sum(1))
        participation.append((once * square_mean).sum(1))
        total.append((once * mass).sum(1))
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
