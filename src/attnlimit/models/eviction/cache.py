"""Caches that hold fewer keys: a layer after a cut, and the evictor of a model."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import DynamicCache, DynamicLayer

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.attention import Call, Slots, attend_dense, attention_as, check_calls
from attnlimit.models.eviction.context import EvictionContext, Queries, evictable_layers
from attnlimit.models.eviction.rules import EvictionRule, StandIns, rotation_for
from attnlimit.models.passes import called_module, unwrap
from attnlimit.models.sampled import AttentionStats
from attnlimit.samplers.base import generator_of
from attnlimit.samplers.systematic import systematic_sample


class KeptKeys(NamedTuple):
    """Keys in the order of their positions: of one KV head (n, ...), or of several (H, n, ...)."""

    key: Tensor  # (n, d)
    value: Tensor  # (n, d_v)
    offset: Tensor  # (n,) added to their scores
    positions: Tensor  # (n,) among the sequence's tokens


class CutSequence(NamedTuple):
    """What a cut left of a sequence in a layer."""

    kept: list[KeptKeys]  # by KV head
    recorded: Queries | None
    length: int  # tokens at the cut, padding left out


class PassRecord(NamedTuple):
    """Queries and slots that one pass showed of one sequence in one layer."""

    query: Tensor  # (H, n, d), those to be recorded
    back: Tensor  # (n,) how many positions before the end they are
    slots: Tensor  # (m,) of the layer's cache that hold keys of this sequence
    scale: float
    softcap: float | None


class CutLayer(DynamicLayer):
    """A layer's cache after a cut: the keys kept by each head, and all tokens since.

    The inherited `keys` and `values` hold the tokens since the cut. The model is given the true
    length, so that positions and masks of later tokens are right.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, rows: list[CutSequence], before: int, sinks: int) -> None:
        super().__init__()
        self.rows = rows
        self.before = before  # tokens at the cut, padding included
        self.lead = min(sinks, *(len(keys.offset) for row in rows for keys in row.kept))
        first = rows[0].kept[0]
        self.dtype, self.device = first.key.dtype, first.key.device
        shape = (len(rows), len(rows[0].kept), 0)
        self.keys = first.key.new_empty(*shape, first.key.shape[-1])
        self.values = first.value.new_empty(*shape, first.value.shape[-1])
        self.is_initialized = True

    @classmethod
    def uncut(cls, layer: Any) -> CutLayer:
        """Return a layer from which nothing was cut yet, with the keys of an ordinary one."""
        count, heads = layer.keys.shape[:2]
        empty = layer.keys.new_empty(0, dtype=torch.float32)
        none = KeptKeys(layer.keys[0, 0, :0], layer.values[0, 0, :0], empty, empty.int())
        cut = cls([CutSequence([none] * heads, None, 0)] * count, 0, 0)
        cut.keys, cut.values = layer.keys, layer.values
        return cut

    @property
    def fresh(self) -> int:
        """Tokens since the cut."""
        return int(self.keys.shape[-2])

    @property
    def bytes(self) -> int:
        """Memory of keys and values, and of what goes with them."""
        kept = sum(tensor.nbytes for row in self.rows for keys in row.kept for tensor in keys)
        return kept + self.keys.nbytes + self.values.nbytes

    @property
    def dense_bytes(self) -> int:
        """Memory that all keys and values would take."""
        rows, heads, _, size = self.keys.shape
        size += self.values.shape[-1]
        return int(rows * heads * self.get_seq_length() * size * self.keys.element_size())

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append tokens, and return a rectangle of slots (`Slots`)."""
        super().update(key_states, value_states)
        offset = torch.nn.functional.pad(self.rectangle("offset"), (0, self.fresh))
        key = torch.cat([self.rectangle("key"), self.keys], dim=2)
        value = torch.cat([self.rectangle("value"), self.values], dim=2)
        key.attnlimit_slots = Slots(offset, self.fresh)  # type: ignore[attr-defined]
        return key, value

    def rectangle(self, name: str) -> Tensor:
        """One field of all kept keys, (B, H_kv, s, ...); heads with fewer have empty slots.

        These come after the first keys, so that sinks stay first and recent keys last.
        """
        every = [getattr(keys, name) for row in self.rows for keys in row.kept]
        most = max(len(values) for values in every)
        empty = -torch.inf if name == "offset" else 0
        rows = []
        for values in every:
            gap = values.new_full((most - len(values), *values.shape[1:]), empty)
            rows.append(torch.cat([values[: self.lead], gap, values[self.lead :]]))
        return torch.stack(rows).unflatten(0, (len(self.rows), -1))

    def get_seq_length(self) -> int:
        """Tokens seen, kept or not."""
        return self.before + self.fresh

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens, if they came after the cut."""
        if abs(tokens_to_remove) > self.fresh:
            raise BadInput(
                "A cut cache cannot be cropped to before the cut; read the prompt again."
            )
        super().crop(tokens_to_remove)

    def reset(self) -> None:
        """Refuse: dropped keys cannot be restored."""
        raise BadInput("A cut cache cannot be used for another text; make a new one.")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Choose sequences, as beam search does."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sequence."""
        self.batch_select_indices(torch.arange(len(self.rows)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Choose sequences."""
        chosen = torch.arange(len(self.rows))[indices.cpu()].tolist()
        self.keys, self.values = self.keys[chosen], self.values[chosen]
        self.rows = [self.rows[row] for row in chosen]

    def all_keys(self, row: int, record: PassRecord | None) -> KeptKeys:
        """Keys of a sequence after a pass, the heads side by side: (H_kv, m, ...)."""
        since = torch.arange(0)
        if record is not None:  # those of the tokens since the cut that are not padding
            first = self.rectangle("offset").shape[-1]
            since = record.slots[record.slots >= first] - first
        before = self.rows[row].length
        key, value = self.keys[row][:, since], self.values[row][:, since]
        offset = key.new_zeros(key.shape[:2], dtype=torch.float32)  # precise whatever keys are
        places = torch.arange(before, before + len(since), dtype=torch.int32, device=key.device)
        new = KeptKeys(key, value, offset, places.expand(len(key), -1))
        kept = (self.rectangle(name)[row] for name in KeptKeys._fields)
        return KeptKeys(*(torch.cat(both, dim=1) for both in zip(kept, new, strict=True)))

    def after(self, row: int, record: PassRecord | None, rule: EvictionRule) -> CutSequence:
        """What a pass leaves of a sequence if nothing is cut: its length, and recorded queries."""
        earlier, length = self.rows[row].recorded, self.rows[row].length
        if record is None:
            return self.rows[row]._replace(recorded=None)
        first = self.rectangle("offset").shape[-1]
        length += int((record.slots >= first).sum())
        queries = Queries(record.query, length - record.back)
        if earlier is not None:
            queries = Queries(
                torch.cat([earlier.query, queries.query], dim=1),
                torch.cat([earlier.positions, queries.positions]),
            )
        return CutSequence(self.rows[row].kept, rule.select_queries(queries, length), length)

    def cut(
        self,
        offsets: Sequence[Tensor | None],
        records: Mapping[int, PassRecord],
        rule: EvictionRule,
    ) -> CutLayer:
        """Return the cache with the keys whose additional offset is finite."""
        rows = []
        for row, more in enumerate(offsets):
            before = self.all_keys(row, records.get(row))
            total = before.offset
            if more is not None:  # layers may have fewer slots than the widest
                total = total + more[:, : total.shape[1]].to(total.dtype)
            keys = before._replace(offset=total)
            chosen = total > -torch.inf
            heads = [
                KeptKeys(*(tensor[head, chosen[head]] for tensor in keys))
                for head in range(len(total))
            ]
            for head, some in enumerate(heads):
                gone = ~chosen[head] & (before.offset[head] > -torch.inf)
                extra = rule.stand_ins(*(part[head, gone] for part in before[:3]))
                if extra is not None:
                    heads[head] = _with_stand_ins(some, extra, rule.sinks)
            rows.append(self.after(row, records.get(row), rule)._replace(kept=heads))
        return CutLayer(rows, self.get_seq_length(), rule.sinks)


class CacheEvictor:
    """Observes the passes of a model and cuts the caches they leave.

    Layers with a sliding window are bounded already and stay as they are.
    """

    def __init__(self, network: Any, rule: EvictionRule) -> None:
        self.cut_layers = evictable_layers(network)
        self.rule = rule
        self.rotate = rotation_for(network, rule)
        self._forget()

    def _forget(self) -> None:
        self._passed: dict[int, dict[int, PassRecord]] = {layer: {} for layer in self.cut_layers}

    def observe(self, call: Call) -> None:
        """Record one layer's attention over one sequence."""
        if call.layer not in self.cut_layers:
            return
        size = call.key.shape[2]
        places = torch.arange(size - call.query.shape[2], size, device=call.query.device)
        queries = self.rule.select_queries(Queries(call.query[0], places), size)
        self._passed[call.layer][call.row] = PassRecord(
            queries.query.detach().clone(),
            size - queries.positions,
            call.mask.positions,
            call.scale,
            call.softcap,
        )

    def after_pass(self, cache: Any, seed: int | Sequence[int]) -> None:
        """Cut the cache that a pass left, if it is time, and forget the pass."""
        seen = self._passed[self.cut_layers[0]]
        if cache is not None and self.rule.keep < 1 and seen:
            first, again = cache.layers[self.cut_layers[0]], self.rule.again
            if not isinstance(first, CutLayer) or (
                again is not None and first.fresh >= again and len(seen) == len(first.rows)
            ):
                self._cut(cache, seed)
            else:
                for number, layer in self._layers(cache).items():
                    for row, record in self._passed[number].items():
                        recorded = layer.after(row, record, self.rule).recorded
                        layer.rows[row] = layer.rows[row]._replace(recorded=recorded)
        self._forget()

    def inclusion_probabilities(self, cache: Any) -> list[Tensor | None]:
        """Probability of every key, (layers, H_kv, m) for each sequence; None for padding."""
        layers = self._layers(cache)
        rows = len(next(iter(layers.values())).rows)
        return [self._of_sequence(layers, row) for row in range(rows)]

    def _layers(self, cache: Any) -> dict[int, CutLayer]:
        """Layers that are cut, by number, after the last pass."""
        layers = {}
        for number in self.cut_layers:
            layer = cache.layers[number]
            if type(layer) not in (DynamicLayer, CutLayer):
                raise BadInput(
                    f"A cache of {type(layer).__name__} cannot be cut; use transformers' "
                    "DynamicCache and layers without sliding windows."
                )
            layers[number] = layer if isinstance(layer, CutLayer) else CutLayer.uncut(layer)
        return layers

    def _of_sequence(self, layers: Mapping[int, CutLayer], row: int) -> Tensor | None:
        found = self.importances(layers, row)
        return None if found is None else self.rule.inclusion_probabilities(*found)

    def importances(
        self, layers: Mapping[int, CutLayer], row: int
    ) -> tuple[Tensor, Tensor, Tensor, int] | None:
        """What decides inclusion probabilities of a sequence; None if all is padding so far."""
        parts, length = [], 0
        for number, layer in layers.items():  # one layer's keys at a time
            record = self._passed[number].get(row)
            if record is None:
                return None
            keys, after = layer.all_keys(row, record), layer.after(row, record, self.rule)
            assert after.recorded is not None
            length = after.length
            context = EvictionContext(
                queries=Queries(after.recorded.query.float(), after.recorded.positions),
                key=keys.key.float(),
                value=keys.value.float(),
                offset=keys.offset,
                positions=keys.positions,
                length=length,
                scale=record.scale,
                softcap=record.softcap,
                rotate=self.rotate,
            )
            weights = self.rule.importance(context).double()
            parts.append((weights, context.occupied, context.positions))
        weights, occupied, positions = map(_stacked, zip(*parts, strict=True))
        return weights, occupied, positions, length

    def _cut(self, cache: Any, seed: int | Sequence[int]) -> None:
        offsets: list[Tensor | None] = []
        for probability in self.inclusion_probabilities(cache):
            if probability is None:
                offsets.append(None)
                continue
            # Every sequence draws as it would alone.
            generator = generator_of(np.random.SeedSequence(seed))
            start = torch.rand(probability.shape[:2], generator=generator, dtype=torch.double)
            log = -torch.log(probability) if self.rule.weighted else torch.zeros_like(probability)
            offsets.append(log.masked_fill(~systematic_sample(probability, start), -torch.inf))
        for i, (number, layer) in enumerate(self._layers(cache).items()):
            own = [None if offset is None else offset[i] for offset in offsets]
            cache.layers[number] = layer.cut(own, self._passed[number], self.rule)


def _with_stand_ins(keys: KeptKeys, extra: StandIns, sinks: int) -> KeptKeys:
    """Put keys that stand for dropped ones behind the first; their position is -1."""
    places = keys.positions.new_full((len(extra.offset),), -1)
    both = zip(keys, (*extra, places), strict=True)
    return KeptKeys(*(torch.cat([old[:sinks], new, old[sinks:]]) for old, new in both))


class EvictingCache(DynamicCache):
    """Cache of one call of `generate` that drops keys by a rule; see `evicting_cache`."""

    def __init__(self, network: Any, rule: EvictionRule, seed: int) -> None:
        super().__init__(config=network.config)
        self.evictor, self.seed, self.passes = CacheEvictor(network, rule), seed, 0

    @property
    def nbytes(self) -> int:
        """Memory of keys and values, and of what goes with them."""
        layers: list[Any] = self.layers
        every = [layer for layer in layers if layer.is_initialized]
        return sum(
            layer.bytes if isinstance(layer, CutLayer) else layer.keys.nbytes + layer.values.nbytes
            for layer in every
        )

    def after_pass(self) -> None:
        """Cut the layers, if it is time."""
        self.evictor.after_pass(self, (self.seed, self.passes))
        self.passes += 1


def evicting_cache(model: Any, rule: EvictionRule, *, seed: int = 0) -> EvictingCache:
    """Return a cache for transformers' `generate` that keeps only some keys of a text.

    `model.generate(..., past_key_values=al.models.evicting_cache(model, al.Evict(0.5)))`. Layers
    with a sliding window are bounded and keep all their keys. Passes with this cache run the
    attention of this library, because kept keys have weights; others are left alone. A cache is
    for one text, or one batch.

    Parameters
    ----------
    model : LoadedModel or transformers model
    rule : EvictionRule
        Such as `Evict(0.5)`; `SnapKV`, `StreamingLLM` and `Tova` need no rotation of queries.
    seed : int
        Seed of the draws.
    """
    network, _ = unwrap(model)
    if not isinstance(rule, EvictionRule):
        raise BadInput(f"The rule must be an eviction rule, such as al.Evict(0.5), got {rule!r}.")
    cache = EvictingCache(network, rule, checks.count(seed, "seed", smallest=0))
    own, running, sessions = weakref.ref(cache), ExitStack(), list[Any]()

    def attention(call: Call) -> Tensor:
        cut = own()
        assert cut is not None
        cut.evictor.observe(call)
        return attend_dense(call)

    def begin(module: Any, inputs: Any, options: dict[str, Any]) -> None:
        if own() is not None and options.get("past_key_values") is own():
            sessions.append(running.enter_context(attention_as(network, attention)))

    def end(module: Any, inputs: Any, options: dict[str, Any], output: Any) -> None:
        given = options.get("past_key_values")
        if isinstance(given, EvictingCache) and given is own():
            running.close()
            calls = sessions.pop().calls
            if output is not None:
                check_calls(network, calls)
                given.after_pass()

    base = called_module(network)
    before = base.register_forward_pre_hook(begin, with_kwargs=True)
    after = base.register_forward_hook(end, with_kwargs=True, always_call=True)
    weakref.finalize(cache, lambda: (before.remove(), after.remove()))
    return cache


@contextmanager
def evicting(
    network: Any, rule: EvictionRule, stats: AttentionStats, root: int
) -> Iterator[CacheEvictor]:
    """Cut the cache after every pass of the model inside the block."""
    evictor, passes = CacheEvictor(network, rule), count()

    def after_pass(module: Any, inputs: Any, output: Any) -> None:
        cache = getattr(output, "past_key_values", None)
        evictor.after_pass(cache, (root, next(passes)))
        if cache is not None:
            full = [layer.keys.nbytes + layer.values.nbytes for layer in cache.layers]
            both = list(zip(cache.layers, full, strict=True))
            stats.cache_bytes = sum(getattr(layer, "bytes", size) for layer, size in both)
            stats.dense_bytes = sum(getattr(layer, "dense_bytes", size) for layer, size in both)

    hook = called_module(network).register_forward_hook(after_pass)
    try:
        yield evictor
    finally:
        hook.remove()


def _stacked(layers: Sequence[Tensor]) -> Tensor:
    """Tensors (H_kv, m) of all layers, slots that a layer does not have left empty."""
    return pad_sequence([layer.T for layer in layers], batch_first=True).transpose(1, 2)
