"""Attention over keys drawn by a sampler, by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.samplers import Products, Sampler
from attnlimit.samplers.base import generator_of

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


def sampled_errors(
    head: Head,
    sequence: ArrayLike,
    places: ArrayLike,
    sampler: Sampler,
    replicates: int,
    seed: int = 0,
) -> Array:
    """Errors of attention over sampled keys against all keys: (replicates, queries, d_v).

    Parameters
    ----------
    sequence : (N, d) array
        The tokens, queries and keys both.
    places : array of int
        Which of them to ask as queries.
    sampler : Sampler
        With its size, like `al.Iid(100)`.
    """
    tokens = checks.real_array(sequence, "sequence", ndim=2)
    rows = np.atleast_1d(np.asarray(places, dtype=np.int64))
    if rows.size == 0 or rows.min() < 0 or rows.max() >= len(tokens):
        raise BadInput(f"places must lie between 0 and {len(tokens) - 1}.")
    draws = checks.count(replicates, "replicates")
    tilts = torch.from_numpy(head.tilts(tokens[rows]))
    products = Products(tilts, torch.from_numpy(tokens), lambda scores: scores)
    blocks = drawn_outputs(
        sampler.bind(products),
        products.query @ products.key.T,
        torch.from_numpy(tokens @ head.V.T),
        torch.from_numpy(rows),
        draws,
        generator_of(checks.count(seed, "seed", smallest=0)),
    )
    return torch.cat(list(blocks)).numpy() - head(tokens[rows], tokens)
