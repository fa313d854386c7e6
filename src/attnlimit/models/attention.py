"""Attention of a transformers model: replaced through its two interfaces, and dense in blocks.

`attention_as` registers a function that is given each layer's queries, keys and values as a `Call`.
transformers passes that function an n x m mask; ours is a constant of that shape whose value is a
number, under which the session knows what the queries of the pass see. A model describes its mask
by a function of four indices: `recognise` finds the one candidate of each kind that agrees with it
on the outermost queries, and holds it to every query and key of the pass. A function that agrees
with none is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.checks import Array
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.models.loading import transformers_library
from attnlimit.samplers import Products

NAME = "attnlimit"
KNOWN_ARGUMENTS = ("position_bias", "softcap", "sliding_window")
HARMLESS_ARGUMENTS = (
    "is_causal", "output_attentions", "head_mask", "position_ids", "cache_position", "use_cache",
    "past_key_values", "past_key_value", "token_type_ids", "output_hidden_states", "return_dict",
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "deterministic",
    "target_dtype", "position_embeddings", "logits_to_keep", "num_items_in_batch",
    "output_router_logits",
)  # fmt: skip


BLOCK_ENTRIES = 1 << 22
"""Scores or visible keys held at a time."""


@dataclass(frozen=True, eq=False)
class Mask:
    """Visibility among the N captured tokens, as data that can be stored and sent.

    A query at place i sees the key at place j if j <= i where `causal`, and |i - j| < `window`
    where there is one. Padding is a gap in `positions`: padded tokens are not among the N.

    `np.asarray(mask)` makes the whole N x N array, for small N; everything here works on blocks.
    """

    positions: Tensor  # (N,) place of each token in the model's input
    causal: bool = False
    window: int | None = None

    @property
    def full(self) -> bool:
        """Whether every query sees every key."""
        return not self.causal and self.window is None

    def __len__(self) -> int:
        return len(self.positions)

    def visible(self, rows: slice | Tensor) -> Tensor:
        """Boolean block: which keys the queries `rows` see."""
        return sees(self.positions[rows], self.positions, self.causal, self.window)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.visible(slice(None)).numpy(), dtype=dtype)

    def __repr__(self) -> str:
        kind = "full" if self.full else "causal" if self.causal else "two-sided"
        width = "" if self.window is None else f", window={self.window}"
        return f"Mask({kind}{width}, tokens={len(self)})"


def sees(queries: Tensor, keys: Tensor, causal: bool, window: int | None) -> Tensor:
    """Boolean block (queries, keys) of places: which keys are seen."""
    ahead = keys[None, :] - queries[:, None]
    seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    return seen if window is None else seen & (ahead.abs() < window)


def precise(tensor: Tensor) -> Tensor:
    """Return a tensor in this machine's memory, in single precision or better.

    Single precision holds half precision exactly, and laws add numbers up.
    """
    return (tensor.float() if tensor.element_size() < 4 else tensor).cpu()


def row_blocks(
    rows: int, columns: int, entries: int = BLOCK_ENTRIES, first: int = 0
) -> Iterator[slice]:
    """Blocks of a matrix's rows from `first` on, of at most `entries` entries or one row."""
    step = max(1, entries // columns)
    return (slice(start, min(start + step, rows)) for start in range(first, rows, step))


def masked_scores(
    scores: Tensor, softcap: float | None, bias: Tensor | None, visible: Tensor | None
) -> Tensor:
    """Scores from scaled products: soft-capped, with a position bias, -inf where not visible."""
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    return scores if visible is None else scores.masked_fill(~visible, -torch.inf)


@dataclass(frozen=True)
class Call:
    """One layer's attention over one sequence, padding left out.

    With a cache there are more keys than queries; `offset` is the first query's place among them.
    """

    layer: int
    query: Tensor  # (1, H, n, d)
    key: Tensor  # (1, H_kv, m, d), after position rotations, not repeated for grouped queries
    value: Tensor  # (1, H_kv, m, d_v)
    mask: Mask  # among the m keys
    scale: float
    softcap: float | None
    position_bias: Tensor | None  # (1, H, n, m), added to the scores
    offset: int = 0
    row: int = 0  # of the sequence in its batch
    added: Tensor | None = None  # (1, H_kv, m), to a key's scores by a cut cache; -inf: no key

    def precise(self) -> Call:
        """Return the same call in this machine's memory, in single precision or better.

        Samplers and laws work on it: devices lack float64, and half precision what sums need. Each
        tensor is in one piece, as files give it.
        """
        given = (self.query, self.key, self.value)
        query, key, value = (precise(tensor).contiguous() for tensor in given)
        bias = None if self.position_bias is None else precise(self.position_bias)
        return replace(self, query=query, key=key, value=value, position_bias=bias)

    @property
    def whole(self) -> bool:
        """Whether queries and keys are the same tokens, as without a cache."""
        return self.query.shape[2] == self.key.shape[2]

    def places(self, rows: slice = slice(None)) -> Tensor:
        """Place of each query among the keys, (n,)."""
        return torch.arange(self.offset, self.offset + self.query.shape[2])[rows]

    def up_to(self, rows: slice) -> Call:
        """Return the same call without the keys after the last of some queries, if it is causal."""
        if not self.mask.causal:
            return self
        end = int(self.places(rows)[-1]) + 1
        return replace(
            self,
            key=self.key[:, :, :end],
            value=self.value[:, :, :end],
            mask=replace(self.mask, positions=self.mask.positions[:end]),
            position_bias=None if self.position_bias is None else self.position_bias[..., :end],
            added=None if self.added is None else self.added[..., :end],
        )


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a layer's cut cache, an attribute `attnlimit_slots` of its tensor of keys.

    A cache whose heads keep different keys has no common positions any more. It hands on a
    rectangle of slots: first those of the keys that were kept, empty where a head kept fewer than
    another, then all keys since the cut.
    """

    added: Tensor  # (B, H_kv, m) to the scores of each key; -inf where a slot is empty
    fresh: int  # how many of the last slots hold the tokens since the cut


Attention = Callable[[Call], Tensor]
"""Returns the outputs (1, H, n, d_v) of one layer over one sequence."""


@dataclass(frozen=True)
class _Seen:
    """What the queries of a forward pass see, by places, and which keys are padding."""

    causal: bool
    window: int | None = None
    offset: int = 0  # position of the first query
    start: int = 0  # position of the first key
    keep: Tensor | None = None  # (B, m) keys that are not padding; None when all are

    @property
    def full(self) -> bool:
        """Whether every query sees every key."""
        return not self.causal and self.window is None


@dataclass
class _Session:
    """State of our attention; masks go through the model as numbers that name what is seen."""

    attention: Attention
    depth: int
    precise: bool  # whether the attention is given calls in single precision, in memory
    seen: dict[int, _Seen] = field(default_factory=dict)
    masks: int = 0
    calls: int = 0


MASK_NUMBERS = 200
"""Masks that a session remembers; half precision tells so many whole numbers apart."""
_session: ContextVar[_Session | None] = ContextVar("attnlimit_session", default=None)


@contextmanager
def attention_as(model: Any, attention: Attention, *, precise: bool = True) -> Iterator[_Session]:
    """Make `model` compute attention with `attention` inside the block, and put it back after.

    Calls come in single precision in this machine's memory, wherever and however the model runs;
    without `precise` as they are.

    Every sequence of a batch is a call of its own, without its padding. The session counts the
    calls of the model: one that never calls the function ran its own attention.
    """
    _register()
    before = model.config._attn_implementation
    session = _Session(attention, int(model.config.num_hidden_layers), precise)
    token = _session.set(session)
    try:
        model.set_attn_implementation(NAME)
        yield session
    finally:
        _session.reset(token)
        model.set_attn_implementation(before)


def check_calls(model: Any, calls: int) -> None:
    """Raise unless every layer called our function exactly once."""
    expected = int(model.config.num_hidden_layers)
    name = type(model).__name__
    if calls == 0:
        raise BadInput(
            f"{name} never calls the attention interface of transformers, so its attention cannot "
            "be captured; use a model that does (BERT, GPT-2, Llama, ...) or BigBird."
        )
    if calls != expected:
        raise BadInput(
            f"{name} called its attention function {calls} times for {expected} layers: it has "
            "cross-attention or layers of another kind, which cannot be captured."
        )


def _register() -> None:
    transformers = transformers_library()
    if not hasattr(transformers, "AttentionMaskInterface"):
        raise AttnlimitError(
            f"transformers {transformers.__version__} has no attention interface; "
            "run `pip install 'transformers>=5'`."
        )
    transformers.AttentionInterface.register(NAME, _attention)
    # Without a mask function of the same name, transformers silently drops causality and padding.
    transformers.AttentionMaskInterface.register(NAME, _mask)


def recognise(
    function: Any, queries: Tensor, keys: Tensor, batch: int = 1
) -> tuple[bool, int | None]:
    """Return whether a transformers mask function is causal, and the width of its window.

    Parameters
    ----------
    function : callable
        Of batch, head, query and key index, as transformers passes it to a mask interface.
    queries, keys : (n,) and (m,) tensors of int
        Places of this pass; nothing is said of others.
    """
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    if function is bidirectional_mask_function:
        return False, None
    if function is causal_mask_function:
        return True, None
    row = torch.arange(batch)[:, None, None]

    def visible(places: Tensor) -> Tensor:
        """What queries at some places see of all keys, (B, r, m)."""
        block = function(row, torch.zeros_like(row), places[:, None], keys[None, :])
        return block.cpu().expand(batch, len(places), len(keys))

    ends = queries[[0, -1]]
    distance = (keys[None, :] - ends[:, None]).abs()
    widest = int(distance.masked_fill(~visible(ends)[0], -1).max()) + 1
    blocks = [queries[rows] for rows in row_blocks(len(queries), len(keys))]
    for causal, window in [(True, None), (False, None), (True, widest), (False, widest)]:
        if window != 0 and all(
            bool((visible(places) == sees(places, keys, causal, window)).all()) for places in blocks
        ):
            return causal, window
    raise BadInput(
        "This model's attention mask is neither causal, nor a sliding window, nor full; "
        "it cannot be captured, use another model."
    )


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Return, in place of an n x m mask, a constant of its shape whose value names what is seen."""
    session = _active()
    if use_vmap:
        raise BadInput(
            "This model's attention mask depends on more than positions; use another model."
        )
    start = int(kv_offset)
    keep = None
    if attention_mask is not None:
        keep = attention_mask.bool().cpu()[:, start : start + kv_length]
        keep = torch.nn.functional.pad(keep, (0, kv_length - keep.shape[1]))
    places = torch.arange(q_length) + int(q_offset)
    rule = recognise(mask_function, places, torch.arange(kv_length) + start, batch_size)
    session.masks = session.masks % MASK_NUMBERS + 1
    keep = None if keep is None or bool(keep.all()) else keep
    session.seen[session.masks] = _Seen(*rule, int(q_offset), start, keep)
    code = torch.full((1, 1, 1, 1), float(session.masks), device=kwargs.get("device"))
    return code.expand(batch_size, 1, q_length, kv_length)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    session = _active()
    _refuse_unknown(module, kwargs)
    seen = _decode(session, attention_mask, module, key.shape[2] != query.shape[2])
    layer = session.calls % session.depth
    session.calls += 1
    bias = kwargs.get("position_bias")
    slots: Slots | None = getattr(key, "attnlimit_slots", None)
    if slots is not None:
        seen = _among_slots(seen, slots, query.shape[2], bias is None)
    outputs = []
    for row in range(len(query)):
        own = slice(row, row + 1)
        keys, queries, offset = _kept_places(seen, row, query.shape[2], key.shape[2])
        own_bias = None if bias is None else bias[own] if len(bias) > 1 else bias
        call = Call(
            layer=layer,
            query=query[own, :, queries],
            key=key[own, :, keys],
            value=value[own, :, keys],
            mask=Mask(seen.start + torch.arange(key.shape[2])[keys], seen.causal, seen.window),
            scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
            softcap=kwargs.get("softcap"),
            position_bias=None if own_bias is None else own_bias[:, :, queries][..., keys],
            offset=offset,
            row=row,
            added=None if slots is None else slots.added[own, :, keys],
        )
        output = query.new_zeros(1, *query.shape[1:3], value.shape[-1])
        if call.query.shape[2]:
            given = call.precise() if session.precise else call
            output[:, :, queries] = session.attention(given).to(query)
        outputs.append(output)
    return torch.cat(outputs).transpose(1, 2).contiguous(), None


def _among_slots(seen: _Seen, slots: Slots, queries: int, plain: bool) -> _Seen:
    """What is seen of a cut cache, by its slots instead of by positions."""
    if not (seen.causal and seen.window is None and plain):
        raise BadInput("A cut cache needs plain causal attention, without windows or biases.")
    full = (slots.added > -torch.inf).any(1)  # (B, m)
    if seen.keep is not None:
        end = seen.offset + queries
        full[:, full.shape[1] - slots.fresh :] = seen.keep[:, end - slots.fresh : end]
    return replace(seen, offset=full.shape[1] - queries, start=0, keep=full)


def _kept_places(
    seen: _Seen, row: int, queries: int, keys: int
) -> tuple[Tensor | slice, Tensor | slice, int]:
    """Places of the keys and of the queries that count, and of the first query among those keys.

    Left out are padding, and room that a static cache holds for keys to come.
    """
    first = seen.offset - seen.start
    kept = torch.ones(keys, dtype=torch.bool) if seen.keep is None else seen.keep[row].clone()
    if not seen.full:
        kept[first + queries :] = False
    own = kept[first : first + queries]
    return _index(kept), _index(own), int(kept[:first].sum())


def _index(chosen: Tensor) -> Tensor | slice:
    return slice(None) if chosen.all() else torch.nonzero(chosen).ravel()


def _refuse_unknown(module: Any, kwargs: dict[str, Any]) -> None:
    """A keyword that changes attention and is ignored would make every number wrong in silence."""
    given = {key for key, value in kwargs.items() if value is not None}
    unknown = given - {*KNOWN_ARGUMENTS, *HARMLESS_ARGUMENTS}
    if unknown:
        raise BadInput(
            f"{type(module).__name__} passes {', '.join(sorted(unknown))} to its attention, which "
            "is not understood here; use another model."
        )


def _decode(session: _Session, code: Tensor | None, module: Any, uneven: bool) -> _Seen:
    if code is None:
        seen = _Seen(bool(getattr(module, "is_causal", False)))
    else:
        number = float(code[0, 0, 0, 0])
        flat = code.dim() == 4 and all(code.shape[i] == 1 or code.stride(i) == 0 for i in (2, 3))
        constant = flat or bool((code == number).all())  # static caches copy their masks
        if not constant or number not in session.seen:
            raise BadInput(
                f"{type(module).__name__} changes its attention mask on the way; use another model."
            )
        seen = session.seen[int(number)]
    if uneven and (code is None or seen.full):
        raise BadInput(
            "Cross-attention (queries and keys of other texts) cannot be captured; use an encoder "
            "or a decoder alone."
        )
    return seen


def _active() -> _Session:
    session = _session.get()
    if session is None:
        raise AttnlimitError(
            "This attention works inside sampled_attention or capture alone; call one of them."
        )
    return session


BLOCK_SCORES = 1 << 24
"""Scores of a layer held at a time, all heads together."""


def attend_dense(call: Call) -> Tensor:
    """Outputs (1, H, n, d_v) of a layer, as the model itself computes them."""
    plain = call.softcap is None and call.position_bias is None and call.added is None
    plain = plain and call.mask.window is None
    last = call.query.shape[2] == 1 and call.offset == call.key.shape[2] - 1
    if plain:
        square = call.mask.full or call.whole or last
        seen = None if square else call.mask.visible(call.places()).to(call.query.device)
        return scaled_dot_product_attention(
            call.query,
            call.key,
            call.value,
            attn_mask=seen,
            is_causal=call.mask.causal and call.whole,
            scale=call.scale,
            enable_gqa=call.query.shape[1] != call.key.shape[1],
        )
    exact = call.precise()
    heads, length = exact.query.shape[1:3]
    values = grouped(exact.value[0], heads)
    blocks = row_blocks(length, heads * exact.key.shape[2], BLOCK_SCORES)
    outputs = torch.cat(
        [torch.softmax(call_products(exact, rows).exact(), -1) @ values for rows in blocks], dim=1
    )
    return outputs[None].to(call.query)


def grouped(tensor: Tensor, heads: int) -> Tensor:
    """Keys or values (H_kv, n, d) as each of `heads` query heads sees them; a view when equal."""
    return tensor.repeat_interleave(heads // len(tensor), dim=0)


def call_products(call: Call, rows: slice) -> Products:
    """Queries and keys of a block, all heads: what samplers that look at them are given."""
    keys = grouped(call.key[0], call.query.shape[1])
    return Products(call.scale * call.query[0, :, rows], keys, partial(_of_products, call, rows))


def _of_products(call: Call, rows: slice, scores: Tensor) -> Tensor:
    bias = None if call.position_bias is None else call.position_bias[0, :, rows]
    if call.added is not None:
        of_keys = grouped(call.added[0], call.query.shape[1])[:, None]
        bias = of_keys if bias is None else bias + of_keys
    return masked_scores(scores, call.softcap, bias, call.mask.visible(call.places(rows)))
