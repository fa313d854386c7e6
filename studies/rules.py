"""Key budgets by head from attention alone, as other tools choose them.

Every rule is brought to the same number of keys read by a query, on average over heads, layers and
queries of a causal text, so that nothing is compared but which keys are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.attention import Call, attend_dense, attention_as, call_products, grouped
from attnlimit.models.passes import run
from attnlimit.models.sampled import shape_of
from attnlimit.planning.allocation import SizeErrors, allocate
from attnlimit.samplers import Keep, Sampler, SinksAndRecent, TopK, TopP
from thinned import Dense

ByHead: TypeAlias = Mapping[tuple[int, int], Sampler]

SINKS = 4
ROWS = 64
"""Queries of a text whose attention is looked at, evenly spaced."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LEVELS = np.geomspace(1, 1e5, 31)  # of 1/weight
MISSING = np.geomspace(1e-4, 0.9, 31)  # share of the weight that top-p leaves out
PYRAMID = 20.0
"""The last layer's part of the mean budget is 1/20 and the first one's 39/20, as in PyramidKV."""


@dataclass(frozen=True)
class Cut(Sampler):
    """Keys of weight at least `level`, and no others: one pool for all heads, as in Ada-KV."""

    level: float

    draws = "nothing"

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return torch.softmax(scores, -1) >= self.level


@dataclass(frozen=True, eq=False)
class Attention:
    """What heads do on a text, over some of its queries: (layers, heads) at the end."""

    tokens: int
    entropy: Array  # of the weights, in nats
    missed: Array  # (S, L, H) squared error of the output on the best SIZES keys, relative
    cut: Array  # keys read at LEVELS
    share: Array  # keys read by top-p at MISSING

    def read(self, sizes: Array) -> Array:
        """Keys that a query reads if it has at most `sizes`, mean over the text."""
        n, size = self.tokens, np.minimum(sizes, self.tokens)
        return np.asarray(size * (n - size) + size * (size + 1) / 2) / n


def look(dense: Dense) -> Attention:
    """Look at every head's attention in one dense pass."""
    network, tokens = dense.model.model, len(dense.encoded.positions)
    layers, heads = shape_of(network)
    entropy = np.zeros((layers, heads))
    missed = np.zeros((len(SIZES), layers, heads))
    cut, share = (np.zeros((len(grid), layers, heads)) for grid in (LEVELS, MISSING))
    step = max(1, tokens // ROWS)

    def attention(call: Call) -> Tensor:
        scores = call_products(call, slice(step // 2, None, step)).exact()
        values, at = grouped(call.value[0], heads), call.layer
        weights = torch.softmax(scores, -1)
        outputs = weights @ values
        ordered, order = weights.sort(-1, descending=True)
        entropy[at] = torch.special.entr(weights).sum(-1).mean(-1).numpy()
        for i, level in enumerate(LEVELS):
            cut[i, at] = (weights >= 1 / level).sum(-1).clamp_min(1).double().mean(-1).numpy()
        before = ordered.cumsum(-1) - ordered
        for i, missing in enumerate(MISSING):
            share[i, at] = (before < 1 - missing).sum(-1).double().mean(-1).numpy()
        rank = torch.empty_like(order).scatter_(
            -1, order, torch.arange(order.shape[-1]).expand_as(order)
        )
        size = outputs.square().sum(-1).mean(-1)
        for i, k in enumerate(SIZES):
            some = torch.where(rank < k, weights, 0.0)
            gap = some @ values / some.sum(-1, keepdim=True) - outputs
            missed[i, at] = (gap.square().sum(-1).mean(-1) / size).numpy()
        return attend_dense(call)

    with torch.no_grad(), attention_as(network, attention):
        run(network, dense.encoded)
    return Attention(tokens, entropy, missed, cut, share)


Rule = Callable[[Attention, float], ByHead]


def uniform(seen: Attention, keys: float) -> ByHead:
    """Give the same best k keys to all heads."""
    return _everywhere(seen, TopK(_size(seen, keys)))


def half_sampled(seen: Attention, keys: float) -> ByHead:
    """Give the best k/2 keys, and k/2 of the rest at random with their weights corrected."""
    return _everywhere(seen, Keep(TopK(1), 1).with_size(_size(seen, keys)))


def sinks_and_recent(seen: Attention, keys: float) -> ByHead:
    """Give the first keys and the last ones, as in StreamingLLM."""
    return _everywhere(seen, SinksAndRecent(SINKS, max(1, _size(seen, keys) - SINKS)))


def top_p(seen: Attention, keys: float) -> ByHead:
    """Give the fewest keys that hold a share of the weight, as in Twilight."""
    read = seen.share.mean((1, 2))[::-1]  # increasing
    missing = np.exp(np.interp(keys, read, np.log(MISSING[::-1])))
    return _everywhere(seen, TopP(float(1 - missing)))


def cut(seen: Attention, keys: float) -> ByHead:
    """Give every key above one level of weight, whatever its head."""
    level = np.exp(np.interp(keys, seen.cut.mean((1, 2)), np.log(LEVELS)))
    return _everywhere(seen, Cut(float(1 / level)))


def pyramid(seen: Attention, keys: float) -> ByHead:
    """Give the first layers more and the last ones less, along a line, as in PyramidKV."""
    layers, heads = seen.entropy.shape
    line = np.linspace(2 - 1 / PYRAMID, 1 / PYRAMID, layers)
    return _shared(seen, keys, np.repeat(line[:, None], heads, 1))


def by_entropy(seen: Attention, keys: float) -> ByHead:
    """Give a head as many keys as its weights are spread over, e^entropy, up to a factor."""
    return _shared(seen, keys, np.exp(seen.entropy))


def greedy(seen: Attention, keys: float) -> ByHead:
    """Give the next keys to the head whose own output gains most of them."""
    read = np.broadcast_to(
        seen.read(np.array(SIZES, dtype=float))[:, None, None], seen.missed.shape
    )
    known = SizeErrors(seen.missed[..., None], np.zeros((*seen.missed.shape, 1)), read, 1.0, read)
    choice = allocate([known], 1, lambda item: known.mean_keys(item) >= keys)
    return {place: TopK(SIZES[int(index)]) for place, index in np.ndenumerate(choice)}


RULES: dict[str, Rule] = {
    "top-k": uniform,
    "sinks + recent": sinks_and_recent,
    "top-k, pyramid of layers": pyramid,
    "top-k, by entropy": by_entropy,
    "top-k, greedy by head": greedy,
    "top-p": top_p,
    "weights above a level": cut,
    "top-k + weighted sample": half_sampled,
}


def _everywhere(seen: Attention, sampler: Sampler) -> ByHead:
    return dict.fromkeys(np.ndindex(*seen.entropy.shape), sampler)


def _size(seen: Attention, keys: float) -> int:
    """Number of keys for every head at which queries read `keys` on average."""
    sizes = np.arange(1.0, seen.tokens + 1)
    return int(sizes[np.abs(seen.read(sizes) - keys).argmin()])


def _shared(seen: Attention, keys: float, parts: Array) -> ByHead:
    """Sizes in proportion to `parts`, scaled until queries read `keys` on average."""
    low, high = 0.0, seen.tokens / float(parts.min())
    for _ in range(60):
        middle = (low + high) / 2
        few = seen.read(np.maximum(1, np.round(middle * parts))).mean() < keys
        low, high = (middle, high) if few else (low, middle)
    sizes = np.clip(np.round(high * parts), 1, seen.tokens)
    return {place: TopK(int(size)) for place, size in np.ndenumerate(sizes)}
