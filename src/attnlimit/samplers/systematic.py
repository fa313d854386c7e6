"""Unequal probabilities of a given sum, and systematic samples of a fixed size.

Sampling without replacement with probabilities proportional to weights: a cache is cut with it, and
tokens are kept for all queries.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING = 1e-9


def proportional(weights: Tensor, sizes: Tensor, sure: Tensor) -> Tensor:
    """Probabilities min(1, c w) in rows that add up to given sizes, each row with its own c.

    Parameters
    ----------
    weights : (..., N) tensor
        A key of weight zero is kept only if it is sure.
    sizes : (...) tensor of int
        Number of keys kept, the sure ones included; all of positive weight where there are fewer,
        and all sure ones where there are more.
    sure : (..., N) tensor of bool
        Keys kept whatever their weight.
    """
    weights = weights.double().masked_fill(sure, torch.inf)
    ordered, _ = weights.sort(-1, descending=True)
    finite = ordered.masked_fill(torch.isinf(ordered), 0.0)
    rest = finite.flip(-1).cumsum(-1).flip(-1)  # of this key and of all lighter ones
    place = torch.arange(weights.shape[-1], device=weights.device)
    left = (sizes[..., None] - place).clamp_min(0).double()
    # Certain are the heaviest keys, the fewest that leave c w <= 1 to all others.
    enough = torch.isfinite(ordered) & (left * finite <= rest * (1 + ROUNDING))
    certain = enough.int().argmax(-1, keepdim=True)
    total = rest.gather(-1, certain)
    factor = left.gather(-1, certain) / total.clamp_min(torch.finfo(torch.double).tiny)
    probability = torch.where(torch.isfinite(weights), weights * factor, 1.0)
    heavier = weights > ordered.gather(-1, certain)
    probability = torch.where(heavier, 1.0, probability.clamp_max(1.0))
    few = (weights > 0).sum(-1, keepdim=True) <= sizes[..., None]
    return torch.where(few, (weights > 0).double(), probability)


def systematic_sample(probability: Tensor, start: Tensor) -> Tensor:
    """Systematic sampling: a boolean tensor, true where a key is kept.

    Probabilities (..., N) below one are laid end to end, and a key is kept where one of the points
    u, u + 1, ... falls on it. So each has its probability, neighbours rarely come together, and
    the number kept is the sum of the probabilities. `start` (...) is u, uniform on [0, 1).
    """
    sure = probability >= 1 - ROUNDING
    edges = probability.double().masked_fill(sure, 0.0).cumsum(-1)
    total = edges[..., -1:]
    whole = total.round()
    end = torch.where((total - whole).abs() < 1e-6, whole, total)
    edges = (edges * (end / total.clamp_min(ROUNDING))).minimum(end)
    edges = torch.nn.functional.pad(edges, (1, 0))
    edges[..., -1:] = end
    points = torch.floor(edges + start[..., None].double())
    return sure | (points[..., 1:] > points[..., :-1])


def rounded_sizes(sizes: Tensor) -> Tensor:
    """Round sizes to whole numbers with the same sum; the largest remainders go up."""
    down = sizes.floor()
    missing = int((sizes.sum() - down.sum()).round())
    up = torch.argsort((sizes - down).reshape(-1), descending=True, stable=True)[:missing]
    added = torch.ones(len(up), dtype=down.dtype)
    return down.reshape(-1).index_add(0, up, added).view_as(sizes).long()
