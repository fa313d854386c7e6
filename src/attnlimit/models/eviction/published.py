"""Published rules that decide which keys a cache keeps, written from their papers.

Budgets of LU-KV (arXiv:2602.08585) are profiled offline for each model and published for one, so
that rule is not here; `Evict(sizes=...)` and exported plans carry budgets by head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.eviction.context import EvictionContext, Queries
from attnlimit.models.eviction.rules import EvictionRule, SnapKV, StandIns, register_rule

BLOCK = 256
"""Queries whose attention is held at a time."""


def received(context: EvictionContext, starts: Tensor) -> Tensor:
    """Attention that keys receive, (H_kv, m), from recorded queries weighted by `starts` (H, n)."""
    total = torch.zeros_like(context.offset)
    for low in range(0, len(context.queries), BLOCK):
        rows = torch.arange(low, min(low + BLOCK, len(context.queries)))
        if not starts[:, rows].any():
            continue
        queries = context.queries.pick(rows)
        seen = (context.positions <= queries.positions.max()).any(0).nonzero().max() + 1
        part = replace(
            context,
            key=context.key[:, :seen],
            offset=context.offset[:, :seen],
            positions=context.positions[:, :seen],
        )
        weights = part.attention(queries, causal=True)
        share = starts[:, rows].reshape(len(weights), 1, -1)  # heads of a group side by side
        total[:, :seen] += (share @ weights)[:, 0]
    return total


@register_rule("h2o")
@dataclass(frozen=True)
class H2O(EvictionRule):
    """Keys of the largest attention summed over all queries, and as many recent ones.

    Half of the budget is for each, as in Zhang et al. (arXiv:2306.14048); sums are over the heads
    of a group.
    """

    keep: float = 0.25
    again: int | None = None

    def recorded_queries(self) -> tuple[int, None]:
        return 0, None

    def importance(self, context: EvictionContext) -> Tensor:
        queries = context.queries.query
        return received(context, queries.new_ones(queries.shape[:2]))

    def inclusion_probabilities(
        self, importance: Tensor, occupied: Tensor, positions: Tensor, length: int
    ) -> Tensor:
        recent = positions >= length - self.size(length) // 2
        importance = importance.masked_fill(recent, torch.inf)
        return super().inclusion_probabilities(importance, occupied, positions, length)


@register_rule("adakv")
@dataclass(frozen=True)
class AdaKV(SnapKV):
    """SnapKV with sizes of heads by their share of a layer's best scores (arXiv:2407.11550).

    With B keys a head on average, a head has N of the layer's best scores and keeps its best
    (1 - a) N + a B keys, a the `safeguard` (Feng et al., 2024).
    """

    safeguard: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= checks.real_number(self.safeguard, "safeguard") <= 1:
            raise BadInput(f"safeguard must lie between 0 and 1, got {self.safeguard:g}.")

    def inclusion_probabilities(
        self, importance: Tensor, occupied: Tensor, positions: Tensor, length: int
    ) -> Tensor:
        size, heads = self.size(length), importance.shape[1]
        pool = _rank(importance.flatten(1), occupied.flatten(1)).view_as(importance)
        counts = ((pool < heads * size) & occupied).sum(-1, keepdim=True)
        sizes = ((1 - self.safeguard) * counts + self.safeguard * size).round()
        return ((_rank(importance, occupied) < sizes) & occupied).double()


@register_rule("pyramidkv")
@dataclass(frozen=True)
class PyramidKV(SnapKV):
    """SnapKV with budgets that fall along a line from the first layer (arXiv:2406.02069).

    Beside the window, the last layer keeps the mean budget over `beta` and the first twice the mean
    less that (Cai et al., 2024).
    """

    beta: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if checks.positive(self.beta, "beta") < 1:
            raise BadInput(f"beta must be at least 1, got {self.beta:g}.")

    def layer_sizes(self, layers: int, length: int) -> Tensor:
        """Keys kept by each head of a layer."""
        mean = max(0, self.size(length) - self.window)
        first = min(2 * mean - mean / self.beta, max(mean, length - self.window))
        line = torch.linspace(first, 2 * mean - first, layers, dtype=torch.double)
        return (line + min(self.window, self.size(length))).round()

    def inclusion_probabilities(
        self, importance: Tensor, occupied: Tensor, positions: Tensor, length: int
    ) -> Tensor:
        sizes = self.layer_sizes(len(importance), length)[:, None, None]
        return ((_rank(importance, occupied) < sizes) & occupied).double()


@register_rule("nexus")
@dataclass(frozen=True)
class NexusSampling(EvictionRule):
    """A weighted reservoir of keys that a walk along attention visits (arXiv:2606.23961).

    Weights w start as the attention of the last `window` queries and are the mean over `steps` of
    a walk that follows attention from token to token. The reservoir keeps the largest u^(1/w), u
    uniform (Efraimidis and Spirakis), so that every key has a chance to stay; kept keys stand for
    themselves alone. The window stays. `seed` is that of the draw (Duong et al., 2026).
    """

    keep: float = 0.25
    window: int = 64
    steps: int = 2
    seed: int = 0
    again: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.window, "window")
        checks.count(self.steps, "steps", smallest=0)
        checks.count(self.seed, "seed", smallest=0)

    def recorded_queries(self) -> tuple[int, None]:
        return 0, None

    def importance(self, context: EvictionContext) -> Tensor:
        queries = context.queries
        heads, groups = len(queries.query), len(queries.query) // len(context.key)
        last = queries.positions >= context.length - self.window
        start = last.to(queries.query.dtype) / last.sum()
        walk = received(context, start.expand(heads, -1)) / groups
        total = walk.clone()
        for _ in range(self.steps):
            walk = received(context, _at_queries(walk, context, queries)) / groups
            total += walk
        old = context.positions < context.length - self.window
        return (total / (self.steps + 1)).masked_fill(~old, torch.inf)

    def inclusion_probabilities(
        self, importance: Tensor, occupied: Tensor, positions: Tensor, length: int
    ) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        exponential = torch.empty(importance.shape, dtype=torch.double)
        exponential.exponential_(generator=generator)  # -log u; w / -log u is ordered as u^(1/w)
        keys = importance.double() / exponential
        return super().inclusion_probabilities(keys, occupied, positions, length)


@register_rule("momentkv")
@dataclass(frozen=True)
class MomentKV(SnapKV):
    """SnapKV whose dropped keys leave their moments (Li et al., arXiv:2606.01563).

    n dropped keys of mean mu, values of mean nu and covariance C of values and keys add
    n e^(s q.mu) to the denominator and n e^(s q.mu) (nu + s C q) to the numerator of a query q, the
    first order of their sums around mu; s is the scale. They are held as one key at mu, and for
    each singular direction of C two light keys a small step from mu on both sides. The paper also
    chooses keys by how well moments describe them; here that is SnapKV's choice.
    """

    step = 0.05
    light = 1e-4

    def stand_ins(self, key: Tensor, value: Tensor, offset: Tensor) -> StandIns | None:
        """Keys, values and offsets that stand for n dropped keys of a head."""
        if len(key) == 0:
            return None
        weights = torch.exp(offset.double() - offset.max())[:, None]
        count, weights = weights.sum() * torch.exp(offset.max().double()), weights / weights.sum()
        keys, values = key.double(), value.double()
        mu, nu = (weights * keys).sum(0), (weights * values).sum(0)
        left, sizes, right = torch.linalg.svd(
            (weights * (values - nu)).T @ (keys - mu), full_matrices=False
        )
        moved = self.step * right
        large = (left * sizes).T * len(sizes) / (self.step * self.light)
        return StandIns(
            torch.cat([mu[None], mu + moved, mu - moved]).to(key.dtype),
            torch.cat([nu[None], large, -large]).to(value.dtype),
            torch.cat(
                [
                    torch.log(count)[None],
                    torch.log(count * self.light / (2 * len(sizes))).expand(2 * len(sizes)),
                ]
            ).to(offset.dtype),
        )


def _rank(importance: Tensor, occupied: Tensor) -> Tensor:
    """Rank of each key along the last dimension, 0 for the most important."""
    ranked = importance.double().masked_fill(~occupied, -1.0)
    return ranked.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)


def _at_queries(walk: Tensor, context: EvictionContext, queries: Queries) -> Tensor:
    """Weight of the walk at the position of each recorded query, (H, n)."""
    groups = len(queries.query) // len(walk)
    at = walk.new_zeros(len(walk), context.length)
    inside = context.positions.long().clamp(0, context.length - 1)
    at.scatter_add_(1, inside, walk.masked_fill(~context.occupied, 0.0))
    return at[:, queries.positions.long()].repeat_interleave(groups, dim=0)
