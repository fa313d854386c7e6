"""How does our own attention get into a transformers model? Through its two interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.models.capture.masks import Mask, Rule
from attnlimit.models.load.load import transformers_library

NAME = "attnlimit"
KNOWN_ARGUMENTS = ("position_bias", "softcap", "sliding_window")
HARMLESS_ARGUMENTS = (
    "is_causal", "output_attentions", "head_mask", "position_ids", "cache_position", "use_cache",
    "past_key_values", "past_key_value", "token_type_ids", "output_hidden_states", "return_dict",
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "deterministic",
    "target_dtype", "position_embeddings", "logits_to_keep", "num_items_in_batch",
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One layer's attention: what a transformers model hands to its attention function."""

    layer: int
    query: Tensor  # (1, H, n, d)
    key: Tensor  # (1, H_kv, n, d), after position rotations, not repeated for grouped queries
    value: Tensor  # (1, H_kv, n, d_v)
    mask: Mask
    keep: Tensor | None  # (n,) tokens that are not padding; None when all are
    scale: float
    softcap: float | None
    position_bias: Tensor | None  # (1, H, n, n), added to the scores


Attention = Callable[[Call], Tensor]
"""Returns the outputs (1, H, n, d_v) of one layer."""


@dataclass
class _Session:
    """State of one forward pass; masks are handed through the model as numbers that name rules."""

    attention: Attention
    keep: Tensor | None
    rules: list[tuple[Rule | None, bool]] = field(default_factory=list)
    calls: int = 0


_session: ContextVar[_Session | None] = ContextVar("attnlimit_session", default=None)


@contextmanager
def attention_as(model: Any, attention: Attention, keep: Tensor | None) -> Iterator[_Session]:
    """Make `model` compute attention with `attention` inside the block, and put it back after.

    `keep` marks the tokens of the one sequence that are not padding, or is None. The session counts
    the calls: a model that never calls the function ran its own attention.
    """
    _register()
    before = model.config._attn_implementation
    session = _Session(attention, keep)
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
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError:
        raise AttnlimitError(
            f"transformers {transformers.__version__} has no attention interface; "
            "run `pip install 'transformers>=5'`."
        ) from None
    AttentionInterface.register(NAME, _attention)
    # Without a mask function of the same name, transformers silently drops causality and padding.
    AttentionMaskInterface.register(NAME, _mask)


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
    """Return, in place of an n x n mask, a constant of its shape whose value names the rule."""
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    session = _active()
    if use_vmap or int(q_offset) or int(kv_offset):
        raise BadInput("This model's attention mask depends on more than positions; not supported.")
    if mask_function is bidirectional_mask_function:
        rule: Rule | None = None
    else:
        rule = _positional(mask_function)
    session.rules.append((rule, mask_function is causal_mask_function))
    code = torch.full((1, 1, 1, 1), float(len(session.rules)))
    return code.expand(batch_size, 1, q_length, kv_length)


def _positional(mask_function: Any) -> Rule:
    zero = torch.zeros((), dtype=torch.long)
    return lambda queries, keys: mask_function(zero, zero, queries, keys)


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
    if query.shape[2] != key.shape[2]:
        raise BadInput("Cross-attention (queries and keys of other texts) cannot be captured.")
    call = Call(
        layer=session.calls,
        query=query,
        key=key,
        value=value,
        mask=_decode(session, attention_mask, module, query.shape[2]),
        keep=session.keep,
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        softcap=kwargs.get("softcap"),
        position_bias=kwargs.get("position_bias"),
    )
    session.calls += 1
    return session.attention(call).transpose(1, 2).contiguous(), None


def _refuse_unknown(module: Any, kwargs: dict[str, Any]) -> None:
    """A keyword that changes attention and is ignored would make every number wrong in silence."""
    unknown = [
        key
        for key, value in kwargs.items()
        if value is not None and key not in KNOWN_ARGUMENTS + HARMLESS_ARGUMENTS
    ]
    if unknown:
        raise BadInput(
            f"{type(module).__name__} passes {', '.join(sorted(unknown))} to its attention, which "
            "is not understood here; the model cannot be captured."
        )


def _decode(session: _Session, code: Tensor | None, module: Any, length: int) -> Mask:
    positions = torch.arange(length)
    if code is None:
        causal = bool(getattr(module, "is_causal", False))
        rule = (lambda queries, keys: keys <= queries) if causal else None
        return Mask(positions, rule, causal)
    number = float(code[0, 0, 0, 0])
    flat = code.dim() == 4 and code.stride(2) == 0 and code.stride(3) == 0
    if not flat or number != int(number) or not 1 <= number <= len(session.rules):
        raise BadInput(
            f"{type(module).__name__} changes its attention mask on the way; not supported."
        )
    rule, causal = session.rules[int(number) - 1]
    return Mask(positions, rule, causal)


def _active() -> _Session:
    session = _session.get()
    if session is None:
        raise AttnlimitError("The attnlimit attention only works inside capture and subsample.")
    return session
