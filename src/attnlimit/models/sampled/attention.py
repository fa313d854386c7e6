"""Sampled attention inside a transformers model, with any sampler and any cache.

This is the reference: every query of every head draws its own keys, scores of all keys are
computed first, and it is no faster than dense attention.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.captured.captured import row_blocks
from attnlimit.models.captured.dense import attend_dense, call_products, grouped
from attnlimit.models.captured.encode import unwrap
from attnlimit.models.captured.interface import Call, attention_as, check_calls
from attnlimit.models.eviction.rules import EvictionRule
from attnlimit.models.sampled.stats import AttentionStats, Widths
from attnlimit.samplers import Sampler
from attnlimit.samplers.base import check_sampler
from attnlimit.simulate.sampled import generator_of
from attnlimit.theory.one_query.first_order import key_variances, squared_distances

BLOCK_SCORES = 1 << 20
"""Scores held at a time by a layer, in about eight copies: less than a layer's at 1000 tokens."""


@runtime_checkable
class SamplerPlan(Protocol):
    """A plan: a sampler for each head of a model that it can be checked against."""

    sensitivity: Array | None  # (layers, heads) nats a token for a squared error of a head

    def samplers(self) -> Mapping[tuple[int, int], Sampler]:
        """Return samplers by (layer, head); heads that are not named read all keys."""

    def check_model(self, model: Any) -> None:
        """Raise BadInput if the plan was made for another model."""


Samplers: TypeAlias = Sampler | Mapping[tuple[int, int], Sampler] | SamplerPlan
"""One sampler for every head, samplers by (layer, head), or a plan."""

SamplerTable: TypeAlias = list[list[Sampler | None]]
"""The sampler of every head by layer, None where a head reads all its keys."""

Place = TypeVar("Place")


def shape_of(network: Any) -> tuple[int, int]:
    """Layers and heads of a model."""
    return int(network.config.num_hidden_layers), int(network.config.num_attention_heads)


def sampler_table(network: Any, samplers: Samplers | None) -> SamplerTable:
    """Return the sampler of every head of `network`, checked against its shape."""
    layers, heads = shape_of(network)
    if samplers is None or isinstance(samplers, Sampler):
        return [[samplers] * heads for _ in range(layers)]
    chosen: Any = samplers
    if isinstance(samplers, SamplerPlan):
        samplers.check_model(network)
        chosen = samplers.samplers()
    if not isinstance(chosen, Mapping):
        check_sampler(chosen)
    table: SamplerTable = [[None] * heads for _ in range(layers)]
    for place, sampler in chosen.items():
        if not (isinstance(place, tuple) and [type(index) for index in place] == [int, int]):
            raise BadInput(
                f"Samplers must be named by (layer, head), two whole numbers, got {place!r}."
            )
        layer, head = place
        if not (0 <= layer < layers and 0 <= head < heads):
            raise BadInput(
                f"There is a sampler for layer {layer}, head {head}, but this model has {layers} "
                f"layers of {heads} heads; make the plan with this model."
            )
        table[layer][head] = check_sampler(sampler)
    return table


def grouped_by_sampler(
    assigned: Iterable[tuple[Place, Sampler | None]],
) -> list[tuple[Sampler, list[Place]]]:
    """Group places that share a sampler; those without one are left out."""
    groups: dict[Any, tuple[Sampler, list[Place]]] = {}
    for place, sampler in assigned:
        if sampler is not None:
            # A sampler of a user's own may not be hashable.
            key = sampler if type(sampler).__hash__ is not None else id(sampler)
            groups.setdefault(key, (sampler, []))[1].append(place)
    return list(groups.values())


def describe(samplers: Samplers) -> str:
    """Return a short description for tables and pages."""
    if isinstance(samplers, Sampler):
        return samplers.name
    return "plan" if isinstance(samplers, SamplerPlan) else "one sampler a head"


@contextmanager
def sampled_attention(
    model: Any,
    samplers: Samplers | EvictionRule,
    *,
    evict: EvictionRule | None = None,
    seed: int = 0,
    limit: float | None = None,
    start: int | None = None,
    before: Callable[[Call], Call] | None = None,
) -> Iterator[AttentionStats]:
    """Make a model's attention read only sampled keys inside the `with` block, or keep only some.

    Forward passes and `model.generate` both work: with a cache, in batches, with padding. What a
    sequence draws depends on the seed and on how many passes ran before in the block, not on the
    other sequences of its batch.

    Parameters
    ----------
    model : LoadedModel or transformers model
    samplers : Sampler, mapping or plan
        Every query of every head draws for itself, among the keys it sees. Or a mapping from
        (layer, head) to samplers, or a plan; heads that are not in it read all keys. Or an
        eviction rule such as `Evict`, when all keys that are left are read.
    evict : EvictionRule, optional
        Drop keys from the cache, beside the samplers that choose among those left.
    limit : float, optional
        Largest first-order loss of a token in nats, with a plan that was made for KL. A layer that
        would take a token past it reads all keys for that token.
    start : int, optional
        Position of the first token whose queries are sampled; earlier queries read all keys. By
        default 0, and for a plan made with `decode=` the end of the first pass.
    before : callable, optional
        Changes a layer's call before it is attended, such as the rounding of its keys.

    Yields
    ------
    AttentionStats
        Keys read so far, their first-order error, and the memory of a cut cache.
    """
    network, _ = unwrap(model)
    rule, plan = evict, None
    if isinstance(samplers, EvictionRule):
        if evict is not None:
            raise BadInput("There are two rules for the cache; give one.")
        rule, table = samplers, sampler_table(network, None)
    else:
        if isinstance(samplers, SamplerPlan):
            plan = samplers
            plan.check_model(model)
            rule = rule or getattr(plan, "evict", None)
        table = sampler_table(network, samplers)
    root = checks.count(seed, "seed", smallest=0)
    first = checks.count(start or 0, "start", smallest=0)
    after_prompt = start is None and getattr(plan, "decode", None) is not None
    sensitivity = None if plan is None else plan.sensitivity
    if limit is not None:
        if sensitivity is None:
            raise BadInput(
                "limit is in nats, which only a plan for KL can count: give the plan of "
                "al.models.plan(model, texts, kl=...) with a sampler that draws keys."
            )
        limit = checks.positive(limit, "limit")
    length_warning = getattr(plan, "length_warning", lambda tokens: "")
    stats = AttentionStats(sensitivity, evicts=rule is not None)
    remaining: dict[tuple[int, int], Tensor] = {}  # nats that queries may lose, by pass and row
    warned = False

    def attention(call: Call) -> Tensor:
        nonlocal warned
        if evictor is not None:
            evictor.observe(call)
        if before is not None:
            call = before(call)
        number = (session.calls - 1) // len(table)  # of the forward pass
        length = call.query.shape[2]
        tokens = call.offset + length
        if not warned and (text := length_warning(tokens)):
            warned = True
            warnings.warn(text, stacklevel=2)
        left = None
        if limit is not None:
            left = remaining.setdefault((number, call.row), torch.full((length,), limit))
        seeds = np.random.SeedSequence([root, number, call.layer])
        begin = tokens if after_prompt and number == 0 else first
        return attend_sampled(
            call,
            table[call.layer],
            generator_of(seeds),
            stats,
            number=number,
            left=left,
            start=begin,
        )

    cutting: Any = nullcontext()
    if rule is not None:
        from attnlimit.models.eviction.cache import evicting  # needs transformers

        cutting = evicting(network, rule, stats, root)
    with attention_as(network, attention) as session, cutting as evictor:
        yield stats
    passes, left_over = divmod(session.calls, len(table))
    check_calls(network, len(table) if passes and not left_over else session.calls)


def attend_sampled(
    call: Call,
    samplers: Sequence[Sampler | None],
    generator: torch.Generator,
    stats: AttentionStats,
    *,
    number: int = 0,
    left: Tensor | None = None,
    start: int = 0,
) -> Tensor:
    """Outputs (1, H, n, d_v) of a layer whose heads read sampled keys, or all where None is.

    `number` is that of the pass. `left` (n,) are the nats that each query may still lose: those
    that this layer would take past it are dense, and the loss of the others is subtracted. Queries
    at positions before `start` are dense and not counted.
    """
    heads, length = call.query.shape[1:3]
    begin = min(length, max(0, start - call.offset))
    chosen = grouped_by_sampler(enumerate(samplers))
    step, widths = stats.of_layer(number, call), Widths.of(call)
    step.tokens += length - begin
    step.unknown |= any(s.draws != "independent" or not s.weighted for s, _ in chosen)
    blocks = row_blocks(length, heads * call.key.shape[2], BLOCK_SCORES, first=begin)
    if not chosen:
        for rows in blocks:
            visible = call.mask.visible(call.places(rows)).expand(heads, -1, -1)
            if call.added is not None:
                visible = visible & (grouped(call.added[0], heads) > -torch.inf)[:, None]
            step.count(visible, visible, samplers, widths)
        return attend_dense(call)
    whole_keys = any(sampler.needs_keys for sampler, _ in chosen)
    outputs = [attend_dense(call)[0, :, :begin]] if begin else []
    for rows in blocks:
        block = call if whole_keys else call.up_to(rows)
        products, values = call_products(block, rows), grouped(block.value[0], heads)
        scores = products.exact()
        added, looked = torch.zeros_like(scores), None
        for sampler, members in chosen:
            bound = sampler.bind(products.of(members))
            some = bound.candidates(scores[members], call.places(rows))
            if some is not None:
                looked = torch.zeros_like(scores) if looked is None else looked
                looked[members] = some
            added[members] = bound.draw(scores[members], call.places(rows), generator)
        weights = torch.softmax(scores + added, -1)
        output = weights @ values
        # What is added to a kept key is -log of its probability.
        left_out = -torch.expm1(-added.clamp_min(0.0))
        squares = key_variances(weights, left_out, squared_distances(values, output)).sum(-1)
        nats = torch.zeros(squares.shape[1])
        if stats.sensitivity is not None:
            nats = torch.from_numpy(stats.sensitivity[call.layer]).to(squares.dtype) @ squares
        if left is not None:
            past = nats > left[rows]
            output[:, past] = torch.softmax(scores[:, past], -1) @ values
            added[:, past], squares[:, past], nats[past] = 0.0, 0.0, 0.0
            left[rows] -= nats
            step.dense += int(past.sum())
        step.count(scores + added > -torch.inf, scores > -torch.inf, samplers, widths, looked)
        step.squares += squares.double().sum(-1).numpy()
        step.nats += float(nats.double().sum())
        whole = output.square().sum(-1).clamp_min(torch.finfo(output.dtype).tiny)
        step.relative += float((squares / whole).double().sum())
        outputs.append(output)
    return torch.cat(outputs, dim=1)[None]
