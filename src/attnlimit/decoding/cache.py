"""Caches of fast decoding: keys and values in arrays with room to grow, and an index of the keys.

A layer of `DecodingLayer` takes the place of transformers' `DynamicLayer`, which copies the whole
cache for every token. Layers with a sliding window are bounded and keep their own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from attnlimit.decoding.dot import BLOCK
from attnlimit.decoding.index import Counts, Floats, KeyIndex, Pages, centred_keys, grown, zeros
from attnlimit.decoding.rows import pack_values
from attnlimit.errors import BadInput
from attnlimit.models.eviction.cache import CutLayer
from attnlimit.planning.precision import Quantize

ROOM = 512
"""Tokens that a new cache has room for beside those it begins with."""
ROWS = {torch.float32: np.float32, torch.bfloat16: np.uint16}
NOTHING = np.zeros((1, 0), np.float32)
LOG2E = 1 / float(np.log(2.0))
Bits = tuple[int, int, int]
"""Bits of keys, bits of values, and the numbers of a value that share a scale; 0 for all."""


class DecodingLayer(DynamicLayer):
    """Keys and values of one layer, (B, H_kv, slots, d), and the index of its keys."""

    is_croppable = False
    keys: Tensor
    values: Tensor
    key_rows: Tensor
    value_rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.length = 0  # tokens that are held, padding included
        self.dropped = 0  # tokens before them that were evicted
        self.log_weights = NOTHING  # (rows, slots) added to scores, in units of log 2
        self.index: KeyIndex | None = None
        self.coded = 0  # length that the index has keys of
        self.next_page = 0  # length from which some row has another full page

    def get_seq_length(self) -> int:
        """Tokens seen, held or not."""
        return self.length + self.dropped

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make the arrays, for what comes first and some more."""
        check_rows(key_states)
        self.dtype, self.device = key_states.dtype, key_states.device
        batch, heads = key_states.shape[:2]
        self.first = np.zeros(batch * heads, np.int64)  # slot of each row's first token
        self.count = np.zeros(batch * heads, np.int64)
        self._allocate(key_states, value_states, key_states.shape[2] + ROOM)
        self.is_initialized = True

    def _allocate(self, key: Tensor, value: Tensor, slots: int) -> None:
        slots = -(-slots // BLOCK) * BLOCK
        shape = (*key.shape[:2], slots)
        try:
            arrays = [zeros((*shape, one.shape[3]), ROWS[self.dtype]) for one in (key, value)]
        except (MemoryError, OSError, OverflowError, ValueError):
            size = 2 * np.prod(shape) * key.shape[3] * key.element_size() / 1e9
            raise BadInput(
                f"There is no memory for the {size:.3g} GB of one layer's cache of {slots} tokens; "
                "use a shorter text or a smaller batch."
            ) from None
        rows = [torch.from_numpy(array).view(self.dtype) for array in arrays]
        if self.is_initialized:
            for new, old in zip(rows, (self.key_rows, self.value_rows), strict=True):
                new[:, :, : self.length] = old[:, :, : self.length]
        self.key_rows, self.value_rows = rows
        self.key_array, self.value_array = (as_rows(row) for row in rows)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append tokens, and return all keys and values as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.length, self.length + key_states.shape[2]
        if end > self.key_rows.shape[2]:
            self._allocate(key_states, value_states, 2 * end)
        self.key_rows[:, :, start:end] = key_states
        self.value_rows[:, :, start:end] = value_states
        self.length = end
        self.count += end - start
        self.keys, self.values = self.key_rows[:, :, :end], self.value_rows[:, :, :end]
        return self.keys, self.values

    def leave_out(self, padding: Counts) -> None:
        """Leave out the first tokens of each sequence, which are padding."""
        self.first = np.repeat(padding, self.groups)
        self.count = self.length - self.first

    def take(self, cut: CutLayer) -> None:
        """Hold the keys that a cut left, each row's in its last slots, instead of all."""
        kept = [keys for row in cut.rows for keys in row.kept]
        counts = np.array([len(keys.offset) for keys in kept], np.int64)
        most, seen = int(counts.max()), self.get_seq_length()
        gaps = (most - counts).tolist()
        pad = torch.nn.functional.pad
        key, value = (
            torch.stack([
                pad(getattr(keys, name), (0, 0, gap, 0))
                for keys, gap in zip(kept, gaps, strict=True)
            ]).unflatten(0, (len(cut.rows), -1))
            for name in ("key", "value")
        )  # fmt: skip
        weights = [pad(keys.offset, (gap, 0)) for keys, gap in zip(kept, gaps, strict=True)]
        self.reset()
        self.update(key, value)
        self.first, self.count, self.dropped = np.array(gaps), counts, seen - most
        self.log_weights = (LOG2E * torch.stack(weights)).float().numpy()

    def added(self) -> Floats:
        """What is added to the scores of each slot, with room for every token."""
        if self.dropped and self.log_weights.shape[1] < self.length:
            self.log_weights = grown(self.log_weights, 2 * self.length)
        return self.log_weights

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first `length`; the index keeps what it holds of them."""
        self.count = self.count - (self.length - length)
        self.length = length
        self.keys, self.values = self.key_rows[:, :, :length], self.value_rows[:, :, :length]

    def indexed(self) -> KeyIndex:
        """Return the index, with every key in it."""
        if self.index is None:
            self.index, self.coded = KeyIndex(self._mean_key(), self.key_rows.shape[2]), 0
        if self.length != self.coded:
            self.index.append(self.key_array, self.first + self.index.count, self.count)
            self.coded = self.length
        return self.index

    def pages(self) -> Pages:
        """Return the summaries of pages, of all that are full."""
        index = self.indexed()
        if index.pages is None or self.length >= self.next_page:
            self.weighted(index.summarise(self.centred()))
            self.next_page = self.length + BLOCK - int((self.count % BLOCK).max())
        assert index.pages is not None
        return index.pages

    def centred(self) -> Callable[[int, int, int], Floats]:
        """Return what gives keys of a row less the mean key, as the cache holds them."""
        assert self.index is not None
        return centred_keys(self.key_array, self.first, self.index.mean)

    def weighted(self, pages: Pages) -> None:
        """Give pages the mean weights of their keys, if some keys were evicted."""
        if self.dropped:
            weights = self.added()
            for row, (start, full) in enumerate(zip(self.first, pages.done, strict=True)):
                own = np.exp2(weights[row, start : start + full * BLOCK])
                pages.lift[row, :full] = np.log2(own.reshape(full, BLOCK).mean(1))

    @property
    def groups(self) -> int:
        """Key-value heads."""
        return int(self.key_rows.shape[1])

    @property
    def value_width(self) -> int:
        """Numbers of a value."""
        return int(self.value_rows.shape[3])

    def stored(self) -> tuple[Any, Any]:
        """Return keys and values as the kernels read them."""
        return self.key_array, self.value_array

    def everything(self) -> tuple[Tensor, Tensor]:
        """Return all keys and values, (B, H_kv, n, d)."""
        return self.keys, self.values

    @property
    def slots(self) -> int:
        """Keys that there is room for."""
        return int(self.key_rows.shape[2])

    def _mean_key(self) -> np.ndarray:
        """Mean key of every row, (rows, d)."""
        rows = self.keys.flatten(0, 1)
        first = self.first.tolist()
        return np.stack([
            row[start:].float().mean(0).numpy() for row, start in zip(rows, first, strict=True)
        ])  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Memory of keys, values and index, room for more included."""
        rows = self.key_rows.nbytes + self.value_rows.nbytes if self.is_initialized else 0
        return rows + self.log_weights.nbytes + (0 if self.index is None else self.index.nbytes)

    def reset(self) -> None:
        """Empty the cache."""
        self.length, self.index, self.is_initialized = 0, None, False
        self.dropped, self.log_weights = 0, NOTHING
        for name in ("keys", "values", "key_rows", "value_rows", "key_array", "value_array"):
            self.__dict__.pop(name, None)

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: pages of removed tokens would have to be made again."""
        raise BadInput(
            "A cache of fast decoding cannot be cropped, as assisted generation does; use "
            "sampled_attention for it."
        )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Refuse beams."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuse beams and several sequences of one prompt."""
        raise BadInput(
            "Fast decoding has no beams; use num_beams=1, or sampled_attention for beam search."
        )

    def batch_select_indices(self, indices: Tensor) -> None:
        """Refuse beams."""
        self.batch_repeat_interleave(1)


class RoundedLayer(DecodingLayer):
    """Keys in 8 or 4 bits, of which the index is the upper half, and values in 8 or 4 bits.

    What a pass brings is rounded before the first token is decoded after it, so that the prompt
    itself is read as it is.
    """

    def __init__(self, key_bits: int, value_bits: int, group: int) -> None:
        super().__init__()
        self.bits, self.group = (key_bits, value_bits), group  # 0 for one scale a value
        self.fresh: list[tuple[Tensor, Tensor]] = []  # not rounded yet

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make the arrays of values; those of keys come with their mean."""
        check_rows(key_states)
        self.group = self.group or int(value_states.shape[3])
        if value_states.shape[3] % self.group:
            raise BadInput(
                f"Groups of {self.group} do not divide values of {value_states.shape[3]} numbers; "
                "give another group."
            )
        self.dtype, self.device = key_states.dtype, key_states.device
        self.batch, heads = key_states.shape[:2]
        rows, self._width = self.batch * heads, int(value_states.shape[3])
        self._groups, self.length = heads, 0
        self.first, self.count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        room = self._width * self.bits[1] // 8
        self.value_codes = np.zeros((rows, 0, room), np.uint8)
        self.value_scales = np.zeros((rows, 0, self._width // self.group), np.uint16)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Take tokens; what is returned are these alone, as `everything` has all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.fresh.append((key_states, value_states))
        self.length += key_states.shape[2]
        self.count = self.length - self.first
        return key_states, value_states

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first `length`."""
        while self.fresh and self.length - self.fresh[-1][0].shape[2] >= length:
            self.length -= self.fresh.pop()[0].shape[2]
        if self.length > length:
            assert self.index is not None
            self.index.count = self.index.count - (self.length - length)
            self.length = length
        self.count = self.length - self.first

    def indexed(self) -> KeyIndex:
        """Round what is fresh, and return the index."""
        if not self.fresh:
            assert self.index is not None
            return self.index
        key, value = (torch.cat(parts, 2) for parts in zip(*self.fresh, strict=True))
        self.fresh = []
        before = np.zeros_like(self.count) if self.index is None else self.index.count
        # A first pass has its padding in front; later ones have none.
        start = self.first if self.index is None else np.zeros_like(self.first)
        keys, values = (as_rows(part.contiguous()) for part in (key, value))
        if self.index is None:
            mean = np.stack([
                row[skip:].float().mean(0).numpy()
                for row, skip in zip(key.flatten(0, 1), self.first.tolist(), strict=True)
            ])  # fmt: skip
            self.index = KeyIndex(mean, self.length + ROOM, bits=self.bits[0])
        if self.length > self.value_codes.shape[1]:
            room = max(self.length + ROOM, 2 * self.value_codes.shape[1])
            self.value_codes = grown(self.value_codes, room)
            self.value_scales = grown(self.value_scales, room)
        self.index.append(keys, start, self.count)
        pack_values(values, start, self.value_codes, self.value_scales, before, self.count)
        return self.index

    def centred(self) -> Callable[[int, int, int], Floats]:
        """Return what gives keys of a row less the mean key, as the cache holds them."""
        assert self.index is not None
        return self.index.decoded

    @property
    def groups(self) -> int:
        """Key-value heads."""
        return self._groups

    @property
    def value_width(self) -> int:
        """Numbers of a value."""
        return self._width

    @property
    def slots(self) -> int:
        """Keys that there is room for."""
        return 0 if self.index is None else self.index.codes.shape[1] * BLOCK

    def stored(self) -> tuple[Any, Any]:
        """Return keys and values as the kernels read them."""
        index = self.indexed()
        keys = index.codes, index.lower, index.scales
        return keys, (self.value_codes, self.value_scales)

    def everything(self) -> tuple[Tensor, Tensor]:
        """Return all keys and values, (B, H_kv, n, d), those that are rounded as they are."""
        parts = list(self.fresh)
        if self.index is not None:
            rows = [self._decoded(row) for row in range(len(self.first))]
            both = (torch.stack(part).to(self.dtype) for part in zip(*rows, strict=True))
            parts.insert(0, tuple(x.unflatten(0, (self.batch, -1)) for x in both))
        if len(parts) == 1:
            return parts[0]
        key, value = (torch.cat(part, 2) for part in zip(*parts, strict=True))
        return key, value

    def _decoded(self, row: int) -> tuple[Tensor, Tensor]:
        """Rounded keys and values of a row, with empty slots where there is padding."""
        assert self.index is not None
        count, skip = int(self.index.count[row]), int(self.first[row])
        keys = self.index.decoded(row, 0, count) + self.index.mean[row]
        codes = self.value_codes[row, :count]
        zero = 128
        if self.bits[1] == 4:
            codes, zero = np.concatenate([codes & 15, codes >> 4], axis=1), 8
        scales = (self.value_scales[row, :count].astype(np.uint32) << 16).view(np.float32)
        values = (codes - np.float32(zero)) * np.repeat(scales, self.group, axis=1)
        pad = ((skip, 0), (0, 0))
        return torch.from_numpy(np.pad(keys, pad)), torch.from_numpy(np.pad(values, pad))

    @property
    def nbytes(self) -> int:
        """Memory of codes, scales and summaries, and of what is not rounded yet."""
        held = sum(key.nbytes + value.nbytes for key, value in self.fresh)
        held += self.log_weights.nbytes
        if self.is_initialized:
            held += self.value_codes.nbytes + self.value_scales.nbytes
        return held + (0 if self.index is None else self.index.nbytes)

    def reset(self) -> None:
        """Empty the cache."""
        super().reset()
        self.fresh = []


def check_rows(key: Tensor) -> None:
    """Refuse keys that the kernels cannot read."""
    if key.device.type != "cpu":
        raise BadInput(
            f"Fast decoding runs on the CPU, and this model is on {key.device}; load it with "
            'device="cpu", or use sampled_attention.'
        )
    if key.dtype not in ROWS:
        raise BadInput(
            f"Fast decoding reads float32 and bfloat16, and this model's keys are {key.dtype}; "
            "load it with dtype=torch.float32."
        )
    if key.shape[3] % 8:
        raise BadInput(
            f"Fast decoding needs heads whose dimension is a multiple of 8, got {key.shape[3]}."
        )


def check_memory(token_bytes: float, batch: int, tokens: int) -> None:
    """Refuse a text whose cache does not fit into the memory that Linux has to give."""
    need = token_bytes * batch * (tokens + ROOM)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return
    free = next((1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable")), need)
    if need > free:
        raise BadInput(
            f"A cache of {batch} x {tokens} tokens takes {need / 1e9:.3g} GB and {free / 1e9:.3g} "
            "are free; use a shorter text, a smaller batch or bfloat16."
        )


def as_rows(tensor: Tensor) -> np.ndarray:
    """View keys or values (B, H_kv, slots, d) as an array of rows; bfloat16 as its bits."""
    flat = tensor.flatten(0, 1)
    if tensor.dtype == torch.bfloat16:
        return flat.view(torch.int16).numpy().view(np.uint16)
    return flat.numpy()


def prepare_cache(
    cache: Any, network: Any, bits: Sequence[Bits | None] | None = None
) -> DynamicCache:
    """Return a cache whose growing layers are of fast decoding: the given one, changed in place.

    `bits` are those of each layer, None for the model's own numbers.
    """
    template = DynamicCache(config=network.config)
    if cache is None:
        cache = template
    if type(cache) is not DynamicCache or cache.offloading:
        raise BadInput(
            f"Fast decoding needs transformers' DynamicCache, got {type(cache).__name__}; leave "
            "out past_key_values and cache_implementation."
        )
    if cache.layer_class_to_replicate is not None:
        held = dict(enumerate(cache.layers))
        cache.layers = [held.get(number, layer) for number, layer in enumerate(template.layers)]
        cache.layer_class_to_replicate = None
    for number, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            own = None if bits is None else bits[number]
            fast = DecodingLayer() if own is None else RoundedLayer(*own)
            if layer.keys is not None and layer.values is not None and layer.get_seq_length():
                fast.update(layer.keys, layer.values)
            cache.layers[number] = fast
    if not any(isinstance(layer, DecodingLayer) for layer in cache.layers):
        raise BadInput(
            f"Every layer of {type(network).__name__} has a sliding window or no cache of keys, so "
            "there is nothing to read faster; generate without fast_decoding."
        )
    return cache


def left_padding(mask: Tensor) -> np.ndarray:
    """Number of padding tokens before each sequence; refuse padding elsewhere."""
    kept = mask.bool()
    first = kept.int().argmax(1)
    if not bool((kept.sum(1) == kept.shape[1] - first).all()):
        raise BadInput(
            'Padding must be on the left for generation; set tokenizer.padding_side = "left".'
        )
    return first.numpy().astype(np.int64)


def loss_of_reading(plan: Any) -> float | None:
    """Loss that a plan predicts for the keys that it does not read; None for other samplers."""
    if getattr(getattr(plan, "target", None), "measure", None) != "kl":
        return None
    return float(plan.losses.get("keys read", plan.predicted))


def loss_of_cache(plan: Any) -> float:
    """Predicted loss of a plan's cache, whatever is read of it."""
    losses = getattr(plan, "losses", {})
    return float(sum(loss for name, loss in losses.items() if name != "keys read"))


def precisions_of(
    network: Any, plan: Any, store: Quantize | None
) -> Sequence[Quantize | None] | None:
    """Precision of each layer's cache, None where all hold the model's own numbers."""
    if store is not None:
        return (store,) * int(network.config.num_hidden_layers)
    held: Sequence[Quantize | None] | None = getattr(plan, "quantize", None)
    return held


def stored_bits(precision: Quantize) -> Bits:
    """Bits of keys and values that a cache of fast decoding holds, and the group of values."""
    keys, values = precision.formats
    kinds = [(form.kind, form.group) if form else None for form in (keys, values)]
    held = kinds[0] == ("codes", None) and values is not None and values.kind == "signed"
    if not held or keys is None or values is None:
        raise BadInput(
            f"Fast decoding cannot hold {precision.name}; give keys row8 or row4 and values "
            'row8, row4, block8 or block4, as in al.Quantize("row8", "block4").'
        )
    return keys.bits, values.bits, int(values.group or 0)


def attend_all(
    layer: DecodingLayer, query: Tensor, scaling: float, softcap: float | None,
    sinks: Tensor | None, rows: Any = slice(None),
) -> Tensor:  # fmt: skip
    """Dense outputs (b, n, H, d_v) of the last queries (B, H, n, d) of some sequences."""
    groups, n = layer.groups, query.shape[2]
    keys, values = (x[rows].float()[:, :, None] for x in layer.everything())
    scores = query[rows].float().unflatten(1, (groups, -1)) @ keys.transpose(3, 4) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    places, size = torch.arange(layer.length), layer.length
    if layer.dropped:
        added = torch.from_numpy(layer.added()[:, :size] / np.float32(LOG2E))
        scores = scores + added.view(-1, groups, 1, 1, size)[rows]
    first = torch.from_numpy(layer.first).view(-1, groups, 1, 1, 1)[rows]
    seen = (places >= first) & (places <= torch.arange(size - n, size)[:, None])
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        own = sinks.float().view(1, groups, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, own], -1)
    weights = torch.softmax(scores, -1)[..., :size]
    return (weights @ values).flatten(1, 2).transpose(1, 2).to(query.dtype)
