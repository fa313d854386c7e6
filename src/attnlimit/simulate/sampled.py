"""Attention over keys drawn by a sampler, by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlimit.samplers import Sampler

BLOCK_SCORES = 1 << 22


def drawn_outputs(
    sampler: Sampler,
    scores: Tensor,
    values: Tensor,
    queries: Tensor,
    draws: int,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Outputs of attention over drawn keys, in blocks (b, R, d_v) that together are all draws.

    Every query draws for itself. `scores` is (R, N), `values` (N, d_v).
    """
    block = max(1, BLOCK_SCORES // scores.numel())
    shapes = ((min(block, draws - at), *scores.shape) for at in range(0, draws, block))
    top = scores.amax(-1, keepdim=True)
    gap = (top - scores).masked_fill(scores == -torch.inf, 0.0).max()
    if sampler.draws != "independent" or gap > -0.9 * math.log(torch.finfo(scores.dtype).tiny):
        for shape in shapes:
            seen = scores.expand(shape)
            yield torch.softmax(seen + sampler.draw(seen, queries, generator), -1) @ values
        return
    # Chances and exponentials are the same in every draw.
    chance = sampler.inclusion_probabilities(scores, queries)
    weight = torch.exp(scores - top)
    if sampler.weighted:
        weight = weight / chance.clamp_min(torch.finfo(chance.dtype).tiny)
    weight = weight.masked_fill(chance == 0, 0.0)
    for shape in shapes:
        uniform = torch.rand(shape, generator=generator, dtype=scores.dtype, device=scores.device)
        drawn = weight * (uniform < chance)
        yield drawn @ values / drawn.sum(-1, keepdim=True)
