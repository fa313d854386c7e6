"""Changes of a model's attention: sampled keys, and several changes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.constants import MAX_NOISE
from attnlimit.errors import BadInput
from attnlimit.models.attention import (
    BLOCK_SCORES,
    Call,
    attend_dense,
    attention_as,
    call_products,
    grouped,
)
from attnlimit.models.eviction.rules import EvictionRule
from attnlimit.models.sampled import (
    AttentionStats,
    SamplerPlan,
    Samplers,
    SamplerTable,
    describe,
    grouped_by_sampler,
    kept_by_group,
    sampled_attention,
    sampler_table,
)
from attnlimit.planning.evicted import EvictedCache, once
from attnlimit.planning.precision import LayerPrecision, Quantize
from attnlimit.planning.probes import Accumulator, Change, ErrorTerms, ProbedLayer, QueryBlock
from attnlimit.samplers import Sampler
from attnlimit.theory.one_query.first_order import (
    IndependentBound,
    WeightLaw,
    threshold_sums,
    weight_law,
)
from attnlimit.theory.one_query.kept import scalar_law


def as_change(change: Any, prompt: int | None = None) -> Change:
    """Return the change that samplers, a plan, an eviction rule or several of them are."""
    if isinstance(change, (list, tuple)) and len(change) > 0:
        rules = [isinstance(part, EvictionRule) for part in change]
        if prompt is not None and any(rules):
            prompts = [prompt if rule else None for rule in rules]
        else:
            prompts = [prompt] * len(rules)
        return Several(tuple(map(as_change, change, prompts)))
    if isinstance(change, Change):
        return change
    if isinstance(change, Quantize):
        return LayerPrecision(change)
    if isinstance(change, EvictionRule):
        return EvictedCache(change, prompt)
    if isinstance(change, SamplerPlan):
        return _plan_change(change, prompt)
    if prompt is not None:
        raise BadInput(
            "prompt is for eviction rules, and samplers act on every token of the text; leave it "
            "out."
        )
    return SampledKeys(change)


def _plan_change(plan: Any, prompt: int | None) -> Change:
    """Return the change that a plan is: what is read, how it is rounded, and what is evicted."""
    evict, precision, decode = (
        getattr(plan, name, None) for name in ("evict", "quantize", "decode")
    )
    parts: list[Change] = []
    if precision is not None:
        parts.append(LayerPrecision(tuple(precision)))
    if evict is not None:
        parts.append(EvictedCache(evict, prompt))
    return Several((SampledKeys(plan), *parts), decode) if parts else SampledKeys(plan)


def check_model(change: Any, model: Any) -> None:
    """Refuse a plan that was made for another model; anything else fits any model."""
    for part in change if isinstance(change, (list, tuple)) else [change]:
        if isinstance(part, SamplerPlan):
            part.check_model(model)


@dataclass(frozen=True, eq=False)
class SampledKeys(Change):
    """Heads that read sampled keys."""

    samplers: Samplers
    start: int = 0  # first position whose queries are sampled
    shares_passes = True
    table: SamplerTable = field(default_factory=list)

    @property
    def name(self) -> str:
        return describe(self.samplers)

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether some head draws keys."""
        return any(s is not None and s.draws != "nothing" for row in self.table for s in row)

    def bound_to(self, network: Any, tokens: int) -> SampledKeys:
        decode = getattr(self.samplers, "decode", None)
        start = self.start if decode is None else max(0, tokens - decode)
        return replace(self, table=sampler_table(network, self.samplers), start=start)

    def accumulator(
        self, network: Any, tokens: int, probes: int, others: Sequence[SampledKeys] = ()
    ) -> SamplingTerms:
        return SamplingTerms([change.table for change in (self, *others)], probes, start=self.start)

    def active(self, model: Any, seed: int) -> AbstractContextManager[AttentionStats]:
        return sampled_attention(model, self.samplers, seed=seed, start=self.start)

    def expected_attention(self, call: Call) -> Tensor | None:
        return expected_outputs(call, self.table[call.layer], self.start)

    @property
    def biased(self) -> bool:  # type: ignore[override]
        """Whether some head leaves keys out without making up for them."""
        return is_biased(self.table)


def is_biased(table: SamplerTable) -> bool:
    """Whether some head leaves keys out without making up for them."""
    return any(
        sampler is not None and (sampler.draws == "nothing" or not sampler.weighted)
        for row in table
        for sampler in row
    )


def expected_outputs(call: Call, samplers: Sequence[Sampler | None], start: int = 0) -> Tensor:
    """Outputs of a layer whose heads weigh every key by its expected weight.

    Mean errors add up over heads, layers and queries, so a few probes measure them badly, and
    layers that err feed layers that err, which no derivative at the dense model sees. A pass with
    these outputs has both; where nothing is drawn it is the changed model itself.
    """
    groups = grouped_by_sampler(enumerate(samplers))
    if not groups:
        return attend_dense(call)
    heads, length = call.query.shape[1:3]
    whole_keys = any(sampler.needs_keys for sampler, _ in groups)
    step = max(1, BLOCK_SCORES // (heads * call.key.shape[2]))
    outputs = [attend_dense(call)[0, :, :start]] if start else []
    for low in range(start, length, step):
        rows = slice(low, low + step)
        block = call if whole_keys else call.up_to(rows)
        products, values = call_products(block, rows), grouped(block.value[0], heads)
        scores = products.exact()
        weights = torch.softmax(scores, -1)
        for sampler, members in groups:
            bound = sampler.bind(products.of(members))
            law = weight_law(bound, scores[members], weights[members], call.places(rows))
            weights[members] = law.mean
        outputs.append(weights @ values)
    return torch.cat(outputs, dim=1)[None]


class SamplingTerms(Accumulator):
    """First-order terms of S tables of samplers at once, from shared blocks of queries."""

    def __init__(
        self,
        tables: Sequence[SamplerTable],
        probes: int,
        *,
        count_shared: bool = False,
        start: int = 0,
        most_queries: int | None = None,
    ) -> None:
        shape = (len(tables), len(tables[0]), len(tables[0][0]))
        self.tables, self.start, self.most_queries = tables, start, most_queries
        self.factor = 1.0  # queries for each that is looked at
        self.variance, self.bias, self.rough = (np.zeros((*shape, probes)) for _ in range(3))
        self.keys, self.visible = np.zeros(shape), 0.0
        self.count_shared = count_shared
        self.shared: dict[int, Array] = {}  # (G,) keys of a group that a head of table 0 reads
        self.bound = IndependentBound()
        self.queries = 0

    def add(self, layer: ProbedLayer) -> None:
        number, heads = layer.call.layer, layer.call.query.shape[1]
        assigned = grouped_by_sampler(
            [
                ((s, h), table[number][h])
                for s, table in enumerate(self.tables)
                for h in range(heads)
            ]
        )
        quick: list[tuple[float, list[tuple[int, int]]]] = []
        others: list[tuple[Sampler, list[tuple[int, int]]]] = []
        for sampler, places in assigned:
            c = sampler.threshold
            if c is not None and not sampler.needs_keys and c >= 10:
                quick.append((c, places))  # noise of the denominator is at most 1/c
            else:
                others.append((sampler, places))
        trim = not any(sampler.needs_keys for sampler, _ in assigned)
        self.queries = layer.call.query.shape[2] - self.start
        every = max(1, self.queries // (self.most_queries or self.queries))
        self.factor = self.queries / len(range(0, self.queries, every))
        for block in layer.blocks(trim=trim, start=self.start, every=every):
            if layer.first:
                self._count(layer.call, block)
                self.bound.add(block.weights, block.along)
            if quick:
                self._add_thresholds(number, quick, block, layer.group)
            for sampler, places in others:
                self._add_sampler(number, sampler, places, block, layer)

    def part(self, first: int, last: int) -> SamplingTerms:
        """Return the sums of tables `first` to `last`."""
        own = copy(self)
        own.tables = self.tables[first:last]
        for name in ("variance", "bias", "rough", "keys"):
            setattr(own, name, getattr(self, name)[first:last])
        return own

    @property
    def mean_visible(self) -> float:
        """Keys that a query of a head sees."""
        return self.visible / self.keys[0].size / max(1, self.queries)

    def terms(self, index: int = 0) -> ErrorTerms:
        """Terms of one table."""
        return ErrorTerms(
            variance=self.variance[index],
            bias=self.bias[index],
            keys=self.keys[index] / max(1, self.queries),
            visible=self.mean_visible,
            rough=self.rough[index],
            bound=self.bound.variance(float(self.keys[index].sum())),
        )

    def _add_sampler(
        self,
        number: int,
        sampler: Sampler,
        places: list[tuple[int, int]],
        block: QueryBlock,
        layer: ProbedLayer,
    ) -> None:
        members = sorted({h for _, h in places})
        bound = sampler.bind(block.products.of(members))
        scores, along = block.scores[members], block.along[:, members]
        law = weight_law(bound, scores, block.weights[members], block.queries)
        variance, bias = law.variance(along), law.bias(along)  # (K, h, R)
        noisy = law.noise > MAX_NOISE
        if sampler.draws == "independent" and bool(noisy.any()):
            _use_exact_law(sampler, law, scores, along, noisy, variance, bias)
            noisy = torch.zeros_like(noisy)
        rough = _total(variance * noisy)
        sums = (_total(variance), _total(bias), law.keys.double().sum(-1))
        for s, h in places:
            i, at = members.index(h), (s, number, h)
            self.variance[at][layer.group] += self.factor * sums[0][:, i]
            self.bias[at][layer.group] += self.factor * sums[1][:, i]
            self.rough[at][layer.group] += self.factor * rough[:, i]
            self.keys[at] += self.factor * float(sums[2][i]) * layer.first

    def _add_thresholds(
        self,
        number: int,
        quick: list[tuple[float, list[tuple[int, int]]]],
        block: QueryBlock,
        group: slice,
    ) -> None:
        grid = sorted({c for c, _ in quick})
        levels = torch.tensor(grid, dtype=torch.double)
        sums = threshold_sums(block.weights, block.along, levels)
        for c, places in quick:
            i = grid.index(c)
            for s, h in places:
                at = (s, number, h)
                self.variance[at][group] += self.factor * sums.variance[i, :, h].numpy()
                self.bias[at][group] += self.factor * sums.bias[i, :, h].numpy()
                self.keys[at] += self.factor * float(sums.keys[i, h]) * (group.start == 0)

    def _count(self, call: Call, block: QueryBlock) -> None:
        visible = block.scores > -torch.inf
        seen = self.factor * visible.sum((1, 2)).double().numpy()
        self.visible += float(seen.sum())
        for s, table in enumerate(self.tables):
            dense = [sampler is None for sampler in table[call.layer]]
            self.keys[s, call.layer] += seen * dense
        if self.count_shared:
            inclusion = visible.to(block.scores.dtype)
            for sampler, members in grouped_by_sampler(enumerate(self.tables[0][call.layer])):
                bound = sampler.bind(block.products.of(members))
                probabilities = bound.inclusion_probabilities(block.scores[members], block.queries)
                inclusion[members] = probabilities
            kept = self.factor * kept_by_group(inclusion, call.key.shape[1]).numpy()
            self.shared[call.layer] = self.shared.get(call.layer, 0.0) + kept


def _use_exact_law(
    sampler: Sampler,
    law: WeightLaw,
    scores: Tensor,
    along: Tensor,
    noisy: Tensor,
    variance: Tensor,
    bias: Tensor,
) -> None:
    """Replace the first order by the exact law of scalars at `noisy` queries."""
    for head, rows in enumerate(noisy):
        if bool(rows.any()):
            exact = scalar_law(
                scores[head, rows],
                along[:, head, rows],
                law.inclusion[head, rows],
                weighted=sampler.weighted,
            )
            bias[:, head, rows] = exact.bias.to(bias.dtype)
            variance[:, head, rows] = (exact.mse - exact.bias.square()).to(variance.dtype)


def _total(rows: Tensor) -> Array:
    return rows.double().sum(-1).numpy()


@dataclass(frozen=True, eq=False)
class Several(Change):
    """Several changes at once: their predicted errors add."""

    parts: tuple[Change, ...]
    decode: int | None = None  # tokens after the prompt, where all of them act after it

    @property
    def name(self) -> str:
        return " and ".join(part.name for part in self.parts)

    @property
    def prompt(self) -> int | None:  # type: ignore[override]
        """Tokens before the change that comes last."""
        return max((part.prompt for part in self.parts if part.prompt is not None), default=None)

    @property
    def check_runs(self) -> int:  # type: ignore[override]
        """Runs that the part needs which varies most."""
        return max(part.check_runs for part in self.parts)

    def bound_to(self, network: Any, tokens: int) -> Several:
        parts = self.parts
        if self.decode is not None:
            prompt = max(2, tokens - self.decode)
            parts = tuple(
                part if isinstance(part, SampledKeys) else replace(part, prompt=prompt)  # type: ignore[type-var]
                for part in parts
            )
        return replace(self, parts=tuple(part.bound_to(network, tokens) for part in parts))

    def accumulator(
        self, network: Any, tokens: int, probes: int, others: Sequence[Any] = ()
    ) -> Accumulator:
        accumulators = [part.accumulator(network, tokens, probes) for part in self.parts]
        return _SeveralTerms(accumulators, int(network.config.num_attention_heads))

    @contextmanager
    def active(self, model: Any, seed: int) -> Iterator[AttentionStats]:
        samplers = [part for part in self.parts if isinstance(part, SampledKeys)]
        caches = [part for part in self.parts if isinstance(part, EvictedCache)]
        precisions = [part for part in self.parts if isinstance(part, LayerPrecision)]
        if max(len(samplers), len(caches), len(precisions)) > 1:
            names = ", ".join(part.name for part in self.parts)
            raise BadInput(f"Two changes of one kind cannot be run together: {names}.")
        before = precisions[0].rounding(seed) if precisions else None
        rule = once(caches[0].rule) if caches else None
        chosen = samplers[0].samplers if samplers else {}
        start = samplers[0].start if samplers and self.prompt is None else None
        with sampled_attention(
            model, chosen, evict=rule, seed=seed, start=start, before=before
        ) as stats:
            yield stats


class _SeveralTerms(Accumulator):
    """Sums of the terms of several changes, by query head."""

    def __init__(self, parts: Sequence[Accumulator], heads: int) -> None:
        self.parts, self.heads = parts, heads

    def add(self, layer: ProbedLayer) -> None:
        for part in self.parts:
            part.add(layer)

    def terms(self, index: int = 0) -> ErrorTerms:
        every = [part.terms().by_query_head(self.heads) for part in self.parts]
        first = every[0]
        for other in every[1:]:
            first = replace(
                first,
                variance=first.variance + other.variance,
                bias=first.bias + other.bias,
                factor=max(first.factor, other.factor),
                bound=float("nan"),
                doubt=first.doubt or other.doubt,
                parts=first.parts | other.parts,
            )
        return first


def expected_pass(network: Any, change: Change) -> AbstractContextManager[Any]:
    """Run a model inside a `with` block whose heads err by their mean error."""

    def attention(call: Call) -> Tensor:
        outputs = change.expected_attention(call)
        return attend_dense(call) if outputs is None else outputs

    return attention_as(network, attention)
