"""How many of which keys are kept? Chances that add up to a number, and a draw of that many."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING = 1e-9


def chances(weights: Tensor, sizes: Tensor, sure: Tensor) -> Tensor:
    """Chances min(1, c w) in rows that add up to given sizes, each row with its own c.

    Parameters
    ----------
    weights : (..., N) tensor
        A key of weight zero is kept only if it is sure.
    sizes : (...) tensor of int
        How many keys are kept, the sure ones included; all that weigh something where there are
        fewer, and all sure ones where there are more.
    sure : (..., N) tensor of bool
        Keys kept whatever they weigh.
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
    chance = torch.where(torch.isfinite(weights), weights * factor, 1.0)
    heavier = weights > ordered.gather(-1, certain)
    chance = torch.where(heavier, 1.0, chance.clamp_max(1.0))
    return torch.where((weights > 0).sum(-1, keepdim=True) <= sizes[..., None],
                       (weights > 0).double(), chance)  # fmt: skip


def systematic(chance: Tensor, start: Tensor) -> Tensor:
    """Draw keys with given chances, as many as these add up to: where a key is kept, boolean.

    Chances (..., N) below one are laid end to end, and a key is kept where one of the points
    u, u + 1, ... falls on it. So its chance is exact, neighbours rarely come together, and the
    number kept is the sum of the chances. `start` (...) is u, uniform on [0, 1).
    """
    sure = chance >= 1 - ROUNDING
    edges = chance.double().masked_fill(sure, 0.0).cumsum(-1)
    total = edges[..., -1:]
    whole = total.round()
    exact = torch.where((total - whole).abs() < 1e-6, whole, total)
    edges = (edges * (exact / total.clamp_min(ROUNDING))).minimum(exact)
    edges = torch.nn.functional.pad(edges, (1, 0))
    edges[..., -1:] = exact
    points = torch.floor(edges + start[..., None].double())
    return sure | (points[..., 1:] > points[..., :-1])
