"""Sampled attention inside a transformers model, what it reads, and an estimate of its error.

This is the reference: every query of every head draws its own keys, scores of all keys are
computed first, and it is no faster than dense attention. With any sampler and any cache.

The output of a head over drawn keys has, to first order, the squared error

    sum over kept keys of (1 - p_j) w_j^2 |v_j - Gamma|^2,      w_j the weights that were used,

which needs the keys that were read and no others. A plan for KL holds the sensitivity of the next
token to a squared error of each head, which turns their sum into nats (docs/theory/output.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.attention import (
    Call,
    attend_dense,
    attention_as,
    call_products,
    check_calls,
    grouped,
    precise,
    row_blocks,
)
from attnlimit.models.eviction.rules import EvictionRule
from attnlimit.models.passes import encode, unwrap
from attnlimit.result import Result
from attnlimit.samplers import Sampler
from attnlimit.samplers.base import check_sampler, generator_of
from attnlimit.theory.one_query.first_order import key_variances, squared_distances


class Widths(NamedTuple):
    """Numbers in a key and in a value, and bytes of a number."""

    key: int
    value: int
    number: float

    @staticmethod
    def of(call: Call) -> Widths:
        """Widths of a layer's cache."""
        return Widths(call.key.shape[-1], call.value.shape[-1], call.key.element_size())

    @property
    def both(self) -> float:
        """Bytes of a key and its value."""
        return (self.key + self.value) * self.number


def moved_bytes(
    samplers: Sequence[Sampler | None],
    kept: ArrayLike,
    visible: ArrayLike,
    widths: Widths,
    candidates: ArrayLike = 0.0,
) -> Array:
    """Bytes (G,) that are read for each of G key-value heads of a layer.

    Parameters
    ----------
    samplers : sequence
        Of the query heads, None where one reads all keys. Query heads that share keys read them
        once, for selection and for attention.
    kept : (G,) array
        Keys that some head of each group keeps, all queries together.
    visible : number or (G,) array
        Keys that the queries see.
    candidates : number or (G,) array
        Candidates among them that some head of each group looks at.
    """
    keys = np.asarray(kept, dtype=float)
    key, value, number = widths
    each = [
        (key * number, value * number, 0.0)
        if sampler is None
        else (
            sampler.selection_bytes(key, number),
            sampler.gather_bytes(key, value, number),
            sampler.candidate_bytes(key, number),
        )
        for sampler in samplers
    ]
    selection, gather, candidate = np.array(each).reshape(len(keys), -1, 3).max(1).T
    read = selection * np.asarray(visible) + gather * keys + candidate * np.asarray(candidates)
    return np.asarray(read)


def kept_by_group(inclusion: Tensor, groups: int) -> Tensor:
    """Expected keys (G,) that some head of each group keeps, from probabilities (H, R, N)."""
    left_out = (1 - inclusion).unflatten(0, (groups, -1)).prod(1)
    return (1 - left_out).double().sum((1, 2))


@dataclass(eq=False)
class LayerStats:
    """One layer in one pass of the model, all heads and queries of the batch together."""

    squares: Array  # (H,) estimated squared errors of each head's outputs
    groups: int  # key-value heads
    tokens: int = 0  # queries of a head
    queries: int = 0  # of all heads
    read: int = 0  # keys read
    visible: int = 0  # keys that dense attention reads
    bytes: float = 0.0  # of keys, values and proxies that are read
    visible_bytes: float = 0.0  # of all keys and values that are seen
    relative: float = 0.0  # squared errors over squared outputs, of all heads and queries
    unknown: bool = False  # whether some head's error cannot be estimated from what it read
    nats: float = 0.0
    dense: int = 0  # tokens that went back to dense attention

    def count(
        self,
        kept: Tensor,
        visible: Tensor,
        samplers: Sequence[Sampler | None],
        widths: Widths,
        candidates: Tensor | None = None,
    ) -> None:
        """Count the keys that queries keep and see, (H, R, N) of bool, and their candidates."""
        shared, seen = (
            some.unflatten(0, (self.groups, -1)).any(1).sum((1, 2)).double().numpy()
            for some in (kept, visible)
        )
        self.queries += kept.shape[0] * kept.shape[1]
        self.read += int(kept.sum())
        self.visible += int(visible.sum())
        scored = 0.0 if candidates is None else kept_by_group(candidates, self.groups).numpy()
        self.bytes += float(moved_bytes(samplers, shared, seen, widths, scored).sum())
        self.visible_bytes += float(seen.sum()) * widths.both


@dataclass(eq=False)
class AttentionStats(Result):
    """Keys that a sampled model has read so far, and its first-order error.

    Errors are those of keys that are drawn and weighted. Keys that a sampler leaves out for good,
    or that a cache has dropped, cannot be seen from the kept ones: `relative_error` is NaN then.
    """

    sensitivity: Array | None = None  # (layers, heads) nats a token for a squared error
    evicts: bool = False  # whether the cache drops keys
    layers: dict[tuple[int, int], LayerStats] = field(default_factory=dict)  # by pass and layer
    cache_bytes: int = 0  # held by the cache that was cut last
    dense_bytes: int = 0  # that all its keys and values would take

    def of_layer(self, number: int, call: Call) -> LayerStats:
        """Statistics of a call's layer in the pass of this number."""
        fresh = LayerStats(np.zeros(call.query.shape[1]), call.key.shape[1])
        return self.layers.setdefault((number, call.layer), fresh)

    def _total(self, name: str) -> float:
        """Sum over passes and layers."""
        return float(sum(getattr(step, name) for step in self.layers.values()))

    def _per_query(self, name: str) -> float:
        """Mean over queries of all heads."""
        return self._total(name) / max(1.0, self._total("queries"))

    def _per_token(self, name: str) -> float:
        """Sum over layers for each token."""
        layers = len({layer for _, layer in self.layers})
        return layers * self._total(name) / max(1.0, self._total("tokens"))

    @property
    def mean_keys(self) -> float:
        """Keys read by a query of a head, on average."""
        return self._per_query("read")

    @property
    def mean_visible(self) -> float:
        """Keys that a query of a head sees, on average."""
        return self._per_query("visible")

    @property
    def mean_bytes(self) -> float:
        """Bytes of keys, values and proxies, read for a token by all layers."""
        return self._per_token("bytes")

    @property
    def visible_bytes(self) -> float:
        """Bytes that dense attention reads for a token."""
        return self._per_token("visible_bytes")

    @property
    def relative_error(self) -> float:
        """Root mean square of |error| / |output| over heads and queries, estimated."""
        unknown = self.evicts or self._total("unknown") > 0
        return float("nan") if unknown else self._per_query("relative") ** 0.5

    @property
    def kl(self) -> float:
        """Estimated KL from the dense model in nats a token, with a plan that was made for KL."""
        if self.sensitivity is None:
            raise BadInput(
                "The effect of head errors on the output comes with a plan; use one that "
                "al.models.plan(model, texts, kl=...) made with a sampler that draws keys."
            )
        return self._per_token("nats")

    @property
    def dense_share(self) -> float:
        """Share of layers and tokens that went back to dense attention."""
        return self._total("dense") / max(1.0, self._total("tokens"))

    def to_frame(self) -> pd.DataFrame:
        """One row for each pass and layer: keys read, relative error, nats if they are known."""
        rows = []
        for (number, layer), step in sorted(self.layers.items()):
            if not step.queries:  # a pass in which nothing was sampled
                continue
            unknown = step.unknown or self.evicts
            row = {
                "pass": number,
                "layer": layer,
                "tokens": step.tokens,
                "mean_keys": step.read / step.queries,
                "mean_visible": step.visible / step.queries,
                "bytes": step.bytes / step.tokens,
                "relative_error": np.nan if unknown else np.sqrt(step.relative / step.queries),
                "dense": step.dense / step.tokens,
            }
            rows.append(row if self.sensitivity is None else row | {"kl": step.nats / step.tokens})
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        text = f"{self.mean_keys:.1f} of {self.mean_visible:.1f} keys read by each query"
        if self.layers and not np.isnan(self.relative_error):
            text += f"; heads err by {100 * self.relative_error:.2g} %"
        if self.layers and self.sensitivity is not None:
            text += f", about {self.kl:.2g} nats a token"
        text += f"; {100 * self.dense_share:.2g} % dense" if self.dense_share else ""
        if not self.dense_bytes:
            return text
        return f"{text}; cache of {self.cache_bytes / 1e6:.2f} of {self.dense_bytes / 1e6:.2f} MB"


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
    limit = check_loss_limit(limit, sensitivity)
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


def check_loss_limit(limit: float | None, sensitivity: Array | None) -> float | None:
    """Return a checked limit on the nats of a token, which only sensitivities can count."""
    if limit is None:
        return None
    if sensitivity is None:
        raise BadInput(
            "limit is in nats, which only a plan for KL can count: give the plan of "
            "al.models.plan(model, texts, kl=...) with a sampler that draws keys."
        )
    return checks.positive(limit, "limit")


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
        added, candidates = torch.zeros_like(scores), None
        for sampler, members in chosen:
            bound = sampler.bind(products.of(members))
            some = bound.candidates(scores[members], call.places(rows))
            if some is not None:
                candidates = torch.zeros_like(scores) if candidates is None else candidates
                candidates[members] = some
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
        step.count(scores + added > -torch.inf, scores > -torch.inf, samplers, widths, candidates)
        step.squares += squares.double().sum(-1).numpy()
        step.nats += float(nats.double().sum())
        whole = output.square().sum(-1).clamp_min(torch.finfo(output.dtype).tiny)
        step.relative += float((squares / whole).double().sum())
        outputs.append(output)
    return torch.cat(outputs, dim=1)[None]


def embed(
    model: Any,
    texts: Sequence[Any],
    sampler: Samplers | None = None,
    *,
    seed: int = 0,
) -> Array:
    """Mean-pooled unit embeddings (texts, d); with sampled attention if a sampler is given.

    `texts` are strings or lists of token ids; each one is cut at the model's positions.
    """
    network, _ = unwrap(model)
    rows = []
    with torch.no_grad():
        for index, text in enumerate(texts):
            encoded = encode(model, text, truncate=True)
            if sampler is None:
                context: Any = attention_as(network, attend_dense)
            else:
                context = sampled_attention(model, sampler, seed=seed + index)
            with context:
                hidden = precise(network.base_model(**encoded.inputs).last_hidden_state[0])
            pooled = hidden.mean(0)
            rows.append((pooled / pooled.norm()).double().numpy())
    if not rows:
        raise BadInput("There are no texts to embed; give a list of strings.")
    return np.stack(rows)
