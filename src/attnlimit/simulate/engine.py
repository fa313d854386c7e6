"""Attention over nested prefixes of one draw, and over keys that a sampler draws.

Prefixes are attended in fused blocks, or on a line by moments of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from math import factorial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.samplers import Sampler

# Scores in flight at a time: the fused kernel never holds them, a fallback kernel would.
BLOCK_PAIRS = 1 << 27
MAX_QUERY_BLOCK = 8192
REACH = 1 / 4
TERMS = 6
CHUNK = 1 << 15

Part = tuple[Tensor, Tensor]
"""Attention over some of the keys: outputs (B, q, d) and log-sum-exp of scores (B, q)."""


def attend(tilts: Tensor, keys: Tensor) -> Part:
    """Attention of queries with scores <t, y> over the keys y, which are their own values.

    Parameters
    ----------
    tilts : (B, q, d) float32 tensor
        The vectors t = A x of the queries.
    keys : (B, n, d) float32 tensor

    Returns
    -------
    (B, q, d) and (B, q) float64 tensors
        Tilted means of the keys and log sum_i exp<t, y_i>, so that parts over disjoint keys can
        be merged.
    """
    block = max(1, min(MAX_QUERY_BLOCK, BLOCK_PAIRS // keys.shape[1]))
    # 4-D inputs take the fused kernel; the public function hides the log-sum-exp it computes.
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    key = keys[:, None]
    parts = [
        fused(query, key, key, 0.0, False, scale=1.0) for query in tilts[:, None].split(block, 2)
    ]
    outputs, logsumexp = (torch.cat(part, dim=2)[:, 0] for part in zip(*parts, strict=True))
    return outputs.double(), logsumexp.double()


def merge(first: Part, second: Part) -> Part:
    """Attention over the union of two disjoint sets of keys."""
    logsumexp = torch.logaddexp(first[1], second[1])
    outputs = first[0] * torch.exp(first[1] - logsumexp)[..., None]
    outputs += second[0] * torch.exp(second[1] - logsumexp)[..., None]
    return outputs, logsumexp


def prefix_outputs(
    tilts: Tensor, keys: Tensor, sizes: Sequence[int], queries: Sequence[int]
) -> Iterator[Tensor]:
    """Yield, for each n in the increasing `sizes`, the outputs of the first queries over n keys.

    The first `queries[k]` (non-decreasing) queries attend to the first `sizes[k]` keys. A query
    meets each key once: what it saw of a shorter prefix is kept and merged with the new keys, so
    the whole grid costs about as much as its largest n.
    """
    seen: Part | None = None
    previous = 0
    for size, count in zip(sizes, queries, strict=True):
        parts = []
        old = 0 if seen is None else seen[0].shape[1]
        if seen is not None:
            parts.append(merge(seen, attend(tilts[:, :old], keys[:, previous:size])))
        if count > old:
            parts.append(attend(tilts[:, old:count], keys[:, :size]))
        outputs, logsumexp = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        seen = outputs, logsumexp
        previous = size
        yield seen[0]


def line_outputs(tilts: Array, keys: Array, sizes: NDArray[np.int64]) -> Array:
    """Tilted means of the first n keys y, for every n in `sizes` and every tilt: (sizes, tilts).

    The line is cut into cells so narrow that |t (y - centre)| <= 1/4. Six moments of the keys in
    each give the sums of e^{ty}, by Taylor's formula, to a relative error of 4e-7: what single
    precision leaves of them, at a cost that hardly grows with the number of tilts.

    Parameters
    ----------
    tilts : (q,) array
    keys : (n,) array
    sizes : increasing (k,) array
    """
    low, width = float(keys.min()), 2 * REACH / float(np.abs(tilts).max())
    cells = int(np.ptp(keys) / width) + 1
    centres = low + width * (np.arange(cells) + 0.5)
    exponents = tilts * centres[:, None]
    exponentials = np.exp(exponents - exponents.max(axis=0))
    series = np.stack([(width * tilts) ** k / factorial(k) for k in range(TERMS)])
    moments = _cell_moments((keys - low) / width, sizes, cells)
    around = moments @ exponentials  # (sizes, terms, tilts)
    along = (moments[:, :TERMS] * centres) @ exponentials
    total = (series * around[:, :TERMS]).sum(axis=1)
    return np.asarray((series * (along + width * around[:, 1:])).sum(axis=1) / total)


def _cell_moments(places: Array, sizes: NDArray[np.int64], cells: int) -> Array:
    """Sums of the powers 0 to TERMS of the distance from the centre, (sizes, terms, cells)."""
    total = np.zeros((TERMS + 1, cells))
    prefixes = []
    for start, end in zip([0, *sizes[:-1]], sizes, strict=True):
        for at in range(start, end, CHUNK):
            here = places[at : min(at + CHUNK, end)]
            cell = here.astype(np.intp)
            beside = here - cell - 0.5
            power = np.ones_like(beside)
            for k in range(TERMS + 1):
                total[k] += np.bincount(cell, power, cells)
                power *= beside
        prefixes.append(total.copy())
    return np.stack(prefixes)


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
