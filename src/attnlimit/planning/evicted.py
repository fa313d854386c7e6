"""Caches that are cut after a prompt: the error of a draw, and the model run with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.constants import EVICTION_FACTOR
from attnlimit.errors import BadInput
from attnlimit.models.attention import Call
from attnlimit.models.eviction.context import EvictionContext, Queries, evictable_layers
from attnlimit.models.eviction.rules import EvictionRule, rotation_for
from attnlimit.models.sampled import AttentionStats, sampled_attention
from attnlimit.planning.probes import Accumulator, Change, ErrorTerms, ProbedLayer
from attnlimit.samplers.systematic import systematic_sample

STARTS = 32
"""Starts of systematic sampling that a variance is averaged over, evenly spaced."""


@dataclass(frozen=True, eq=False)
class EvictedCache(Change):
    """A cache that is cut after a prompt, by default after half of the text.

    One draw serves all later queries, so the errors that a dropped key makes at different queries
    add up before they are squared: along a probe g, key j of a KV head has the effect
    A_j = sum over queries and heads of P_j <g, v_j - Gamma>, and a cut moves the probe by
    sum_j (kept_j / p_j - 1) A_j, whose variance is over the draws (docs/theory/eviction.md).
    """

    rule: EvictionRule
    prompt: int | None = None
    check_runs = 3

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether keys are drawn."""
        return self.rule.weighted

    def bound_to(self, network: Any, tokens: int) -> EvictedCache:
        evictable_layers(network)
        rotation_for(network, self.rule)
        size = tokens // 2 if self.prompt is None else self.prompt
        if not 2 <= size < tokens - 1:
            raise BadInput(
                f"The text has {tokens} tokens; the prompt must have 2 at least and leave two, "
                f"got {size}."
            )
        return replace(self, prompt=size)

    def accumulator(
        self, network: Any, tokens: int, probes: int, others: Sequence[Any] = ()
    ) -> EvictionTerms:
        if not self.rule.weighted:
            raise BadInput(
                f"{self.rule.name} draws nothing, so it has no variance to predict; measure it "
                "with evaluate, one run gives its error."
            )
        assert self.prompt is not None
        return EvictionTerms(network, [self.rule], self.prompt)

    def active(self, model: Any, seed: int) -> AbstractContextManager[AttentionStats]:
        return sampled_attention(model, once(self.rule), seed=seed)


def once(rule: EvictionRule) -> EvictionRule:
    """Return a rule that cuts after the first pass only."""
    return rule if rule.again is None else replace(rule, again=None)  # type: ignore[type-var]


class EvictionTerms(Accumulator):
    """Effects of a prompt's keys on later queries, and the variance of cuts.

    `rules` differ in the share of keys that they keep.
    """

    def __init__(self, network: Any, rules: Sequence[EvictionRule], prompt: int) -> None:
        rule = rules[0]
        self.rules, self.rule, self.prompt = rules, rule, prompt
        self.layers, self.rotate = evictable_layers(network), rotation_for(network, rule)
        self.depth = int(network.config.num_hidden_layers)
        self.effects: dict[int, list[Tensor]] = {}
        self.importance: dict[int, Tensor] = {}

    def add(self, layer: ProbedLayer) -> None:
        call = layer.call
        if call.layer not in self.layers:
            return
        probes, heads = layer.gradients.shape[:2]
        total = layer.gradients.new_zeros(probes, heads, self.prompt)
        for block in layer.blocks(start=self.prompt):
            size = self.prompt
            total += (block.weights[..., :size] * block.along[..., :size]).sum(2)
        effects = total.view(probes, call.key.shape[1], -1, self.prompt).sum(2)
        self.effects.setdefault(call.layer, []).append(effects)
        if layer.first:
            self.importance[call.layer] = self.rule.importance(self._context(call))

    def terms(self, index: int = 0) -> ErrorTerms:
        return self.terms_of(self.rules[index])

    def terms_of(self, rule: EvictionRule) -> ErrorTerms:
        """Terms of one rule."""
        effects = torch.stack([torch.cat(self.effects[layer]) for layer in self.layers], dim=1)
        importance = torch.stack([self.importance[layer] for layer in self.layers])
        places = torch.arange(self.prompt).expand(importance.shape)
        inclusion = rule.inclusion_probabilities(importance, places >= 0, places, self.prompt)
        shape = (self.depth, importance.shape[1])
        variance = np.zeros((*shape, len(effects)))
        variance[self.layers] = draw_variance(effects, inclusion).permute(1, 2, 0).numpy()
        keys = np.full(shape, float(self.prompt))
        keys[self.layers] = inclusion.sum(-1).numpy()
        drawn = bool(((inclusion > 0) & (inclusion < 1)).any() or (inclusion == 1).all())
        doubt = "" if drawn else "keys that always stay fill the cache, and nothing is drawn"
        visible = float(self.prompt)
        zeros = np.zeros_like(variance)
        return ErrorTerms(variance, zeros, keys, visible, factor=EVICTION_FACTOR, doubt=doubt)

    def _context(self, call: Call) -> EvictionContext:
        """State of the cache after the prompt."""
        size = self.prompt
        key, value = call.key[0, :, :size], call.value[0, :, :size]
        queries = Queries(call.query[0, :, :size], torch.arange(size))
        return EvictionContext(
            queries=self.rule.select_queries(queries, size),
            key=key,
            value=value,
            offset=key.new_zeros(key.shape[:2]),
            positions=torch.arange(size).expand(key.shape[:2]),
            length=size,
            scale=call.scale,
            softcap=call.softcap,
            rotate=self.rotate,
        )


def draw_variance(effects: Tensor, inclusion: Tensor) -> Tensor:
    """Variance of a cut along each probe, (K, layers, H_kv), over the starts of its draw.

    `effects` (K, layers, H_kv, m) are A_j, `inclusion` (layers, H_kv, m) probabilities.
    """
    total = effects.new_zeros(effects.shape[:3], dtype=torch.double)
    weighted = effects.double() / inclusion.clamp_min(torch.finfo(torch.double).tiny)
    whole = effects.double().sum(-1)
    for number in range(STARTS):
        start = torch.full(inclusion.shape[:2], (number + 0.5) / STARTS, dtype=torch.double)
        moved = (weighted * systematic_sample(inclusion, start)).sum(-1) - whole
        total += moved.square()
    return total / STARTS
