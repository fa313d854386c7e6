"""Calibration sets: texts, or captures with gradients, on which plans are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.attention import Call, attend_dense, attention_as
from attnlimit.models.captured import Captured
from attnlimit.models.captures import call_of
from attnlimit.models.eviction.context import evictable_layers
from attnlimit.models.eviction.rules import EvictionRule, rotation_for
from attnlimit.models.loading import predicts_tokens
from attnlimit.models.passes import encode, run, unwrap
from attnlimit.models.sampled import SamplerTable
from attnlimit.planning.changes import SampledKeys, SamplingTerms, as_change, expected_pass
from attnlimit.planning.error import run_distance
from attnlimit.planning.evicted import EvictedCache, EvictionTerms
from attnlimit.planning.precision import PrecisionTerms, Quantize
from attnlimit.planning.probes import (
    Accumulator,
    ErrorTerms,
    ProbedLayer,
    ProbeRun,
    Prompt,
    kept_probes,
    probe,
    read_prompt,
    replay,
)
from attnlimit.planning.target import Target, choose_target

PROBES = 4
DIRECTIONS = 8
"""Random directions along which the squared error of a head is taken."""
MOST_QUERIES = 128
"""Queries of a text that samplers which look at keys are tabulated at, evenly spaced."""
MUST_RUN = (
    "A sampler that leaves keys out without making up for them needs a run of the model to be "
    "predicted: plan it with --model and --text, or from the capture with threshold."
)


@dataclass(frozen=True)
class Candidates:
    """Samplers, precisions and eviction rules whose error terms are tabulated together."""

    tables: Sequence[SamplerTable]
    decode: int | None = None  # only queries of so many last tokens are changed
    precisions: Sequence[Sequence[Quantize | None]] = ()
    rules: Sequence[EvictionRule] = ()


@dataclass(frozen=True, eq=False)
class TextTerms:
    """Error terms of one text, for tables of samplers."""

    sums: SamplingTerms
    run: ProbeRun
    precision: PrecisionTerms | None = None
    eviction: EvictionTerms | None = None
    tokens: int = 0  # of the text

    @property
    def positions(self) -> int:
        """Positions that the loss is a mean over."""
        return self.sums.queries

    def part(self, first: int, last: int) -> TextTerms:
        """Return the terms of tables `first` to `last`."""
        return replace(self, sums=self.sums.part(first, last))

    def rounding(self) -> Array:
        """Loss by rounding, (P, 2, L, H_kv, K): of keys and of values, for each precision."""
        assert self.precision is not None
        return self.run.scale * self.precision.squares()

    def eviction_of(self, rule: EvictionRule) -> tuple[Array, Array]:
        """Loss of a rule along each probe (K,), and the share that each layer keeps (L,)."""
        assert self.eviction is not None
        terms = self.eviction.terms_of(rule)
        return self._evicted(terms).sum((0, 1)), terms.keys.mean(1) / terms.visible

    def eviction_by_head(self, rule: EvictionRule) -> Array:
        """Loss of a rule by key-value head, (L, H_kv)."""
        assert self.eviction is not None
        return self._evicted(self.eviction.terms_of(rule)).mean(-1)

    def _evicted(self, terms: ErrorTerms) -> Array:
        """Loss (L, H_kv, K), a mean over the tokens after the prompt."""
        assert self.eviction is not None
        after = min(self.positions, self.tokens - self.eviction.prompt)
        return self.run.scale * self.positions / after * terms.variance


class CalibrationSet(ABC):
    """Texts with the error terms of every head."""

    name: str  # of the model
    weights: str  # SHA-256 of its weights, empty if not known
    architecture: dict[str, int]  # layers, heads, kv_heads, head_dim
    causal: bool  # whether it predicts the next token
    tokens: tuple[int, ...]  # of each text
    probes: int
    seed: int
    number: float = 4.0  # bytes of a number of the cache

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        return self.architecture["layers"], self.architecture["heads"]

    @abstractmethod
    def terms(self, text: int, candidates: Candidates) -> TextTerms:
        """Error terms along the probes of one text."""

    def every_text(
        self,
        candidates: Candidates,
        progress: Callable[[int, int], None] | None = None,
        *,
        with_output: bool = False,
    ) -> list[TextTerms]:
        """Error terms of every text; the dense model's output is kept only if it is needed."""
        texts = []
        for text in range(len(self.tokens)):
            terms = self.terms(text, candidates)
            if not with_output:
                terms = replace(terms, run=replace(terms.run, read=terms.run.read[:0]))
            texts.append(terms)
            if progress is not None:
                progress(text + 1, len(self.tokens))
        return texts

    def check_runs(self) -> None:
        """Raise unless there is a model that can run."""
        raise BadInput(MUST_RUN)

    def bias(self, text: int, terms: TextTerms, table: SamplerTable) -> float:
        """Distance of the output when heads err by their mean error."""
        raise BadInput(MUST_RUN)

    def measured(self, plan: Any) -> tuple[float, float] | None:
        """Distance and standard error of a run with a plan on the first text, if it can run."""
        return None

    @abstractmethod
    def each_layer(self, text: int, look: Callable[[Call], None], start: int) -> None:
        """Show every layer of one text, as the dense model has it; queries count from `start`."""

    def check_rule(self, rule: EvictionRule) -> None:
        """Raise unless the effect of an eviction rule can be predicted."""
        raise BadInput("Evictions are predicted with the model: give --model and --text.")

    def squared_errors(self, table: SamplerTable, decode: int | None) -> tuple[Array, Array]:
        """Expected squared errors of head outputs, and keys that a group reads together.

        Means over queries and texts, (layers, heads) and (layers, KV heads). The squared error is
        the mean over random directions r of the variance along them, E <r, e>^2 = |e|^2.
        """
        squares = np.zeros(self.shape)
        shared = np.zeros((self.shape[0], self.architecture["kv_heads"]))

        def look(call: Call) -> None:
            generator = torch.Generator().manual_seed(self.seed + call.layer)
            shape = (DIRECTIONS, *call.query.shape[1:3], call.value.shape[-1])
            directions = torch.randn(shape, generator=generator, dtype=call.query.dtype)
            sums.add(ProbedLayer(call, directions, slice(0, DIRECTIONS)))

        for text, tokens in enumerate(self.tokens):
            start = 0 if decode is None else max(0, tokens - decode)
            sums = SamplingTerms(
                [table], DIRECTIONS, count_shared=True, start=start, most_queries=MOST_QUERIES
            )
            self.each_layer(text, look, start)
            queries = sums.queries * len(self.tokens)
            squares += sums.variance[0].mean(-1) / queries
            shared += np.stack([sums.shared[layer] for layer in range(len(shared))]) / queries
        return squares, shared


def architecture_of(network: Any) -> dict[str, int]:
    """Numbers of a model that a plan is checked against."""
    config = network.config
    heads = int(config.num_attention_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return {
        "layers": int(config.num_hidden_layers),
        "heads": heads,
        "kv_heads": int(getattr(config, "num_key_value_heads", None) or heads),
        "head_dim": int(head_dim),
    }


class ModelCalibration(CalibrationSet):
    """A model that can run, on texts."""

    def __init__(
        self, model: Any, texts: Any, target: Target, probes: int, seed: int, truncate: bool
    ) -> None:
        self.model = model
        self.network, _ = unwrap(model)
        self.target = choose_target(self.network, target)
        self.encoded = [encode(model, text, truncate=truncate) for text in _listed(texts)]
        source = self.encoded[0].source
        self.name = str(source.get("model", type(model).__name__))
        self.weights = str(source.get("weights", ""))
        self.causal = predicts_tokens(self.network)
        self.architecture = architecture_of(self.network)
        self.number = float(self.network.dtype.itemsize)
        self.tokens = tuple(len(text.positions) for text in self.encoded)
        self.probes, self.seed = probes, seed
        self._prompt: tuple[int, int, Prompt | None] | None = None

    def terms(self, text: int, candidates: Candidates) -> TextTerms:
        size, decode = self.tokens[text], candidates.decode
        start = 0 if decode is None else max(0, size - decode)
        others: dict[str, Accumulator] = {}
        if candidates.precisions:
            others["precision"] = PrecisionTerms(candidates.precisions, start)
        if candidates.rules:
            prompt = size // 2 if decode is None else start
            EvictedCache(candidates.rules[0], prompt).bound_to(self.network, size)
            others["eviction"] = EvictionTerms(self.network, candidates.rules, prompt)
        tables = candidates.tables
        needs_keys = any(s is not None and s.needs_keys for t in tables for s in t[0])
        few = MOST_QUERIES if needs_keys and decode is not None else None
        sums = SamplingTerms(tables, self.probes, start=start, most_queries=few)
        target = self.target.from_position(start)
        how = target, self.probes, self.seed + text  # every text has its own seed

        def reduce(layer: ProbedLayer) -> None:
            for accumulator in (sums, *others.values()):
                accumulator.add(layer)

        read = self.prompt(text, start)
        passed = probe(self.network, self.encoded[text], *how, reduce, start, read)
        return TextTerms(sums, passed, tokens=size, **others)  # type: ignore[arg-type]

    def check_rule(self, rule: EvictionRule) -> None:
        if not rule.weighted:
            EvictedCache(rule).accumulator(self.network, 0, 1)
        evictable_layers(self.network)
        rotation_for(self.network, rule)

    def check_runs(self) -> None:
        return

    def bias(self, text: int, terms: TextTerms, table: SamplerTable) -> float:
        start = terms.sums.start
        change = SampledKeys({}, start, table)
        target = self.target.from_position(start)
        with torch.no_grad(), expected_pass(self.network, change):
            moved = target.read(run(self.network, self.encoded[text]))
        return target.between(terms.run.read, moved)

    def measured(self, plan: Any) -> tuple[float, float] | None:
        size = self.tokens[0]
        change = as_change(plan).bound_to(self.network, size)
        start = 0 if plan.decode is None else max(0, size - plan.decode)
        target = self.target.from_position(max(start, change.prompt or 0))
        seeds = range(self.seed + 1, self.seed + 4)
        prompt = None if change.prompt is not None else self.prompt(0, start)
        return run_distance(self.model, self.encoded[0], change, target, seeds, prompt=prompt)

    def each_layer(self, text: int, look: Callable[[Call], None], start: int) -> None:
        prompt = self.prompt(text, start)

        def attention(call: Call) -> Tensor:
            look((call if prompt is None else prompt.whole(call)).precise())
            return attend_dense(call)

        with torch.no_grad(), attention_as(self.network, attention):
            run(self.network, self.encoded[text], None if prompt is None else prompt.copied())

    def prompt(self, text: int, tokens: int) -> Prompt | None:
        """Return the first tokens of a text as read; the last prompt is kept."""
        if not tokens:
            return None
        if self._prompt is None or self._prompt[:2] != (text, tokens):
            self._prompt = None
            read = read_prompt(self.network, self.encoded[text], tokens)
            self._prompt = text, tokens, read
        return self._prompt[2]


class CaptureCalibration(CalibrationSet):
    """Captures that keep the output's gradients; the model may be anywhere."""

    def __init__(self, captures: Sequence[Captured], target: Target) -> None:
        self.captures = captures
        kept = [kept_probes(capture) for capture in captures]
        first, measure = captures[0], target.measure
        if any((each.output, each.count) != (kept[0].output, kept[0].count) for each in kept):
            raise BadInput("The captures keep probes of different kinds or numbers; capture again.")
        output = kept[0].output
        if {"kl": "kl", "cosine": "cosine_loss"}.get(output, output) != measure:
            raise BadInput(
                f"The capture keeps gradients of {output}, and the target is {target.name}: "
                f"capture again with --output {target.name}, or plan with the model."
            )
        if any((c.depth, c.heads) != (first.depth, first.heads) for c in captures):
            raise BadInput("The captures are of models of different shapes; give those of one.")
        layer = next(iter(first.layers.values()))
        self.target = target
        self.name = str(first.source.get("model", "own tensors"))
        self.weights = str(first.source.get("weights", ""))
        self.causal = output == "kl"
        self.architecture = {
            "layers": first.depth,
            "heads": first.heads,
            "kv_heads": len(layer.k),
            "head_dim": int(layer.k.shape[-1]),
        }
        self.number = float(layer.k.element_size())
        self.tokens = tuple(len(capture) for capture in captures)
        self.probes, self.seed = kept[0].count, kept[0].seed

    def terms(self, text: int, candidates: Candidates) -> TextTerms:
        if candidates.rules:
            self.check_rule(candidates.rules[0])
        if candidates.decode is not None:
            raise BadInput(
                "A capture's gradients are of all positions; plan decode= with the model."
            )
        sums = SamplingTerms(candidates.tables, self.probes)
        rounded = PrecisionTerms(candidates.precisions) if candidates.precisions else None

        def reduce(layer: ProbedLayer) -> None:
            sums.add(layer)
            if rounded is not None:
                rounded.add(layer)

        return TextTerms(sums, replay(self.captures[text], reduce), rounded)

    def each_layer(self, text: int, look: Callable[[Call], None], start: int) -> None:
        for number, layer in sorted(self.captures[text].layers.items()):
            look(call_of(number, layer))


def calibration_of(
    model: Any,
    texts: Any,
    target: Target,
    *,
    probes: int | None = None,
    seed: int | None = None,
    truncate: bool = False,
) -> CalibrationSet:
    """Return the calibration set of a model and texts, or of captures."""
    count = None if probes is None else checks.count(probes, "probes", smallest=2)
    root = None if seed is None else checks.count(seed, "seed", smallest=0)
    several = isinstance(model, (list, tuple)) and len(model) > 0
    if not all(isinstance(given, Captured) for given in (model if several else [model])):
        if texts is None:
            raise BadInput("There are no texts to plan on; give at least one, after the model.")
        return ModelCalibration(model, texts, target, count or PROBES, root or 0, truncate)
    if texts is not None:
        raise BadInput("A capture is of its own text; give no other, or a model to read it.")
    stored = CaptureCalibration(list(model) if several else [model], target)
    if count not in (None, stored.probes) or root not in (None, stored.seed):
        raise BadInput(
            f"The capture keeps {stored.probes} probes of seed {stored.seed}: leave probes and "
            "seed out, or capture again with others."
        )
    return stored


def _listed(texts: Any) -> list[Any]:
    """Several texts, or one."""
    single = isinstance(texts, (str, Mapping, torch.Tensor)) or (
        isinstance(texts, Sequence) and len(texts) > 0 and isinstance(texts[0], (int, np.integer))
    )
    listed = [texts] if single else list(texts)
    if not listed:
        raise BadInput("There are no texts to plan on; give at least one.")
    return listed
