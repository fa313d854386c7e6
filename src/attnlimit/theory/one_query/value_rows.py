"""Law of attention whose value rows are drawn by their weights, when all keys are read.

With one row from each stratum [(s-1)/S, s/S) of the cumulated weights, the mean of a(i_s) has the
variance (1/S) sum_j P_j a_j^2 - (1/S^2) sum_s (mean of a over stratum s)^2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlimit.theory.one_query.sampled import SamplerLaw, by_blocks

STARTS = 64
"""Starts that the variance of systematic sampling is averaged over, evenly spaced."""


def value_variance(weights: Tensor, along: Tensor, size: int, systematic: bool) -> Tensor:
    """Variance of the mean of `size` drawn rows, (..., R), of numbers `along` (..., R, N)."""
    ends = weights.double().cumsum(-1)
    ends = (ends / ends[..., -1:]).clamp_max(1.0)
    shares = torch.diff(ends, prepend=torch.zeros_like(ends[..., :1]))
    numbers = along.double()
    mean = (shares * numbers).sum(-1)

    def row(points: Tensor) -> Tensor:
        wanted = points.expand(*ends.shape[:-1], -1).contiguous()
        found = torch.searchsorted(ends, wanted, right=True).clamp_max(ends.shape[-1] - 1)
        return found.expand(*numbers.shape[:-1], -1)

    grid = torch.arange(size, dtype=torch.double)
    if systematic:
        total = torch.zeros_like(mean)
        for start in range(STARTS):
            drawn = numbers.gather(-1, row((grid + (start + 0.5) / STARTS) / size))
            total += (drawn.mean(-1) - mean).square()
        return (total / STARTS).to(along.dtype)
    # The integral of a(u) up to the edge of each stratum.
    edges = torch.arange(1, size, dtype=torch.double) / size
    at = row(edges)
    before = (shares * numbers).cumsum(-1) - shares * numbers
    starts = (ends - shares).expand(numbers.shape).gather(-1, at)
    inner = before.gather(-1, at) + (edges - starts) * numbers.gather(-1, at)
    whole = torch.cat([torch.zeros_like(mean)[..., None], inner, mean[..., None]], -1)
    square = (shares * numbers.square()).sum(-1)
    variance = square / size - torch.diff(whole, dim=-1).square().sum(-1)
    return variance.clamp_min(0.0).to(along.dtype)


def value_law(sampler: Any, scores: Tensor, values: Tensor) -> SamplerLaw:
    """Law at each of R queries, from scores (R, N) and values (N, d_v) in double precision."""
    output = torch.softmax(scores, 1) @ values

    def of(rows: slice) -> tuple[Tensor, ...]:
        weights = torch.softmax(scores[rows], 1)
        along = values.T[:, None] - output[rows].T[:, :, None]
        mse = value_variance(weights, along, sampler.size, sampler.systematic).sum(0)
        drawn, counts = sampler.overlaps(weights)
        participation = weights.square().sum(1) + counts.sum(1) / sampler.size**2
        return mse, participation, drawn.masked_fill(scores[rows] == -torch.inf, 0.0).sum(1)

    mse, participation, kept = by_blocks(of, len(scores), scores.shape[1] * values.shape[1])
    bias = torch.zeros_like(output)
    return SamplerLaw(
        mse=mse.numpy(),
        bias=bias.numpy(),
        participation=participation.numpy(),
        kept=kept.numpy(),
        output=output.numpy(),
        weighted=True,
    )
