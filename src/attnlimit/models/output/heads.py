"""What does each head's sampling do to the output? Variance and bias along every probe.

The numbers here are sums over the queries of a head, for any number of ways to sample at once: what
a prediction adds up and what a plan chooses from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.capture.dense import call_products, grouped
from attnlimit.models.capture.encode import Encoded
from attnlimit.models.capture.interface import Call
from attnlimit.models.output.first_order import Scatter, scatter
from attnlimit.models.output.probes import Probed, Reduce, probe
from attnlimit.models.output.target import Target
from attnlimit.models.output.thresholds import threshold_sums
from attnlimit.models.output.yardstick import Yardstick
from attnlimit.models.spend.assign import Table, grouped_by_sampler
from attnlimit.models.spend.traffic import Widths, kept_by_group, moved_bytes
from attnlimit.samplers import Sampler, Threshold
from attnlimit.samplers.products import Products
from attnlimit.theory.law.scalar import scalar_law

BLOCK = 1 << 22
"""Products of a gradient and a value held at a time."""

MAX_NOISE = 0.1
"""Relative variance of a softmax's denominator up to which first order is reliable."""


@dataclass(frozen=True, eq=False)
class HeadErrors:
    """Sums over queries for S ways to sample, L layers of H heads and K probes."""

    variance: Array  # (S, L, H, K)
    bias: Array  # (S, L, H, K)
    keys: Array  # (S, L, H) read, all queries together
    rough: Array  # (S, L, H, K) variance where neither first order nor an exact law is reliable
    moved: Array | None  # (S, L, H) bytes, those of heads that share keys spread over them
    visible: float  # keys that all queries of all heads see
    dense_bytes: float  # of their keys and values, each read once
    probed: Probed
    yardstick: Yardstick

    def total(self, index: int) -> Array:
        """Predicted distance of the output by each probe, (K,)."""
        bias = self.bias[index].sum((0, 1))
        return self.probed.scale * (self.variance[index].sum((0, 1)) + bias**2)


def head_errors(
    network: Any,
    encoded: Encoded,
    tables: Sequence[Table],
    target: Target,
    probes: int,
    seed: int,
    *,
    bytes_too: bool = False,
) -> HeadErrors:
    """Variance and bias of every head along `probes` gradients, for every table of samplers.

    `bytes_too` counts the bytes that each moves.
    """

    def passes(reduce: Reduce) -> Probed:
        return probe(network, encoded, target, probes, seed, reduce)

    return summed_errors(passes, tables, probes, bytes_too=bytes_too)


def summed_errors(
    passes: Callable[[Reduce], Probed],
    tables: Sequence[Table],
    probes: int,
    *,
    bytes_too: bool = False,
) -> HeadErrors:
    """Variance and bias of every head along the gradients that `passes` hands on."""
    sums = _Sums(tables, probes, bytes_too)
    probed = passes(sums.add)
    return HeadErrors(
        sums.variance,
        sums.bias,
        sums.keys,
        sums.rough,
        sums.moved if bytes_too else None,
        sums.visible,
        sums.dense_bytes,
        probed,
        sums.best,
    )


class _Sums:
    """Adds up the heads of one layer after another."""

    def __init__(self, tables: Sequence[Table], probes: int, bytes_too: bool) -> None:
        shape = (len(tables), len(tables[0]), len(tables[0][0]))
        self.tables = tables
        self.variance, self.bias, self.rough = (np.zeros((*shape, probes)) for _ in range(3))
        self.keys, self.moved = np.zeros(shape), np.zeros(shape)
        self.visible, self.dense_bytes = 0.0, 0.0
        self.bytes_too = bytes_too
        self.best = Yardstick()

    def add(self, call: Call, gradients: Tensor, group: slice) -> None:
        """Add one layer, whose gradients are (K, H, N, d_v)."""
        heads = call.query.shape[1]
        wanted = grouped_by_sampler(
            ((s, h), table[call.layer][h])
            for s, table in enumerate(self.tables)
            for h in range(heads)
        )
        fast = [(s.c, places) for s, places in wanted if isinstance(s, Threshold) and _quick(s)]
        slow = [(s, p) for s, p in wanted if not (isinstance(s, Threshold) and _quick(s))]
        trim = not any(sampler.asks_keys for sampler, _ in wanted)
        for block, along in _blocks(call, gradients, trim=trim):
            queries, scores, weights = block.queries, block.scores, block.weights
            if group.start == 0:  # keys do not depend on the probes, and a few are a yardstick
                self._count(call, scores)
                if self.bytes_too:
                    self._count_bytes(call, block)
                self.best.add(weights, along)
            if fast:
                self._add_thresholds(call.layer, fast, weights, along, group)
            for sampler, places in slow:
                members = sorted({h for _, h in places})
                chosen = sampler.seeing(block.products.of(members))
                law = scatter(chosen, scores[members], weights[members], queries)
                directed = along[:, members]
                variance, bias = law.variance(directed), law.bias(directed)  # (K, h, R)
                noisy = law.noise > MAX_NOISE
                if sampler.draws == "independent" and bool(noisy.any()):
                    _make_exact(sampler, law, scores[members], directed, noisy, variance, bias)
                    noisy = torch.zeros_like(noisy)
                rough = _total(variance * noisy)
                sums = (_total(variance), _total(bias), law.keys.double().sum(-1))
                for s, h in places:
                    i = members.index(h)
                    at = (s, call.layer, h)
                    self.variance[at][group] += sums[0][:, i]
                    self.bias[at][group] += sums[1][:, i]
                    self.rough[at][group] += rough[:, i]
                    self.keys[at] += float(sums[2][i]) * (group.start == 0)

    def _count(self, call: Call, scores: Tensor) -> None:
        seen = (scores > -torch.inf).sum((1, 2)).double().numpy()
        self.visible += float(seen.sum())
        self.dense_bytes += float(seen[0]) * call.key.shape[1] * Widths.of(call).both
        for s, table in enumerate(self.tables):
            for h, sampler in enumerate(table[call.layer]):
                self.keys[s, call.layer, h] += seen[h] * (sampler is None)

    def _count_bytes(self, call: Call, block: _Block) -> None:
        groups = call.key.shape[1]
        seen = float((block.scores[0] > -torch.inf).sum())
        for s, table in enumerate(self.tables):
            row = table[call.layer]
            chance = (block.scores > -torch.inf).to(block.scores.dtype)
            for sampler, members in grouped_by_sampler(enumerate(row)):
                seeing = sampler.seeing(block.products.of(members))
                chance[members] = seeing.keep(block.scores[members], block.queries)
            kept = kept_by_group(chance, groups).numpy()
            moved = moved_bytes(row, kept, seen, Widths.of(call))
            self.moved[s, call.layer] += np.repeat(moved, len(row) // groups) * groups / len(row)

    def _add_thresholds(
        self,
        layer: int,
        fast: list[tuple[float, list[tuple[int, int]]]],
        weights: Tensor,
        along: Tensor,
        group: slice,
    ) -> None:
        grid = sorted({c for c, _ in fast})
        sums = threshold_sums(weights, along, torch.tensor(grid, dtype=torch.double))
        for c, places in fast:
            i = grid.index(c)
            for s, h in places:
                at = (s, layer, h)
                self.variance[at][group] += sums.variance[i, :, h].numpy()
                self.bias[at][group] += sums.bias[i, :, h].numpy()
                self.keys[at] += float(sums.keys[i, h]) * (group.start == 0)


def _make_exact(
    sampler: Sampler,
    law: Scatter,
    scores: Tensor,
    along: Tensor,
    noisy: Tensor,
    variance: Tensor,
    bias: Tensor,
) -> None:
    """Put the exact law of the scalars in place of the first order at `noisy` queries."""
    for head, rows in enumerate(noisy):
        if bool(rows.any()):
            exact = scalar_law(
                scores[head, rows],
                along[:, head, rows],
                law.chance[head, rows],
                weighted=sampler.weighted,
            )
            bias[:, head, rows] = exact.bias.to(bias.dtype)
            variance[:, head, rows] = (exact.mse - exact.bias.square()).to(variance.dtype)


def _quick(sampler: Threshold) -> bool:
    """Whether all thresholds can be done at once: the denominator's noise is at most 1/c."""
    return sampler.proxy is None and sampler.c >= 1 / MAX_NOISE


def _total(rows: Tensor) -> Array:
    return rows.double().sum(-1).numpy()


@dataclass(frozen=True, eq=False)
class _Block:
    """Some queries of a layer, and what they see."""

    queries: Tensor  # (R,) places
    products: Products
    scores: Tensor  # (H, R, N)
    weights: Tensor  # (H, R, N)


def _blocks(call: Call, gradients: Tensor, *, trim: bool) -> Iterator[tuple[_Block, Tensor]]:
    """Blocks of queries, and <g, v - Gamma> of their keys, (K, H, R, N).

    With `trim`, keys that no query of a block sees are left out; some samplers ask for them.
    """
    probes, heads, length = gradients.shape[:3]
    size = call.key.shape[2]
    step = max(1, min(64 if trim else size, BLOCK // (probes * heads * size)))
    for start in range(0, length, step):
        rows = slice(start, min(start + step, length))
        block = call.up_to(rows) if trim else call
        products, values = call_products(block, rows), grouped(block.value[0], heads)
        scores = products.exact()
        weights = torch.softmax(scores, -1)
        along = gradients[:, :, rows] @ values.transpose(1, 2)
        along -= (weights * along).sum(-1, keepdim=True)
        yield _Block(call.places(rows), products, scores, weights), along
