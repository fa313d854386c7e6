"""How does text become a model's input? One sequence, checked against the model's positions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.load.load import LoadedModel, max_positions


@dataclass(frozen=True, eq=False)
class Encoded:
    """One sequence as the model takes it; padding is named in `keep`."""

    inputs: dict[str, Tensor]
    keep: Tensor | None  # (n,) tokens that are not padding; None when all are
    tokens: tuple[str, ...]  # of the kept ones, like the rest
    positions: Tensor
    special: Tensor
    source: dict[str, Any]


def unwrap(model: Any) -> tuple[Any, Any | None]:
    """Return the transformers model and its tokenizer."""
    if isinstance(model, LoadedModel):
        return model.model, model.tokenizer
    if not hasattr(model, "config") or not hasattr(model, "base_model"):
        raise BadInput(
            f"The model must come from attnlimit.models.load or transformers, got {type(model)}."
        )
    if model.training:
        raise BadInput("The model is in training mode, where dropout is random; call model.eval().")
    return model, None


def encode(
    model: Any,
    text: str | Sequence[int] | Tensor | Mapping[str, Tensor],
    *,
    special_tokens: bool = True,
    truncate: bool = False,
) -> Encoded:
    """Turn text, token ids or ready inputs into one sequence."""
    network, tokenizer = unwrap(model)
    if isinstance(text, Mapping):
        return _ready(model, text)
    if isinstance(text, str):
        ids, special = _tokenize(tokenizer, text, special_tokens)
    else:
        numbers = _tensor(text, "Token ids")
        numbers = numbers[0] if numbers.dim() == 2 and len(numbers) == 1 else numbers
        _check_ids(numbers, network)
        ids, special = [int(i) for i in numbers], [False] * len(numbers)
    limit = max_positions(network)
    if limit is not None and len(ids) > limit:
        if not truncate:
            raise BadInput(
                f"The text has {len(ids)} tokens and the model takes {limit}; "
                "cut it there with truncate=True, or split it with capture_windows."
            )
        # Cut the text, keeping special tokens at its end.
        tail = 0
        while tail < len(ids) and special[-1 - tail]:
            tail += 1
        head, end = limit - tail, len(ids) - tail
        ids, special = ids[:head] + ids[end:], special[:head] + special[end:]
    return _sequence(model, ids, special, torch.arange(len(ids)))


def encode_windows(
    model: Any, text: str, width: int | None, overlap: int, special_tokens: bool
) -> list[Encoded]:
    """Split a text into windows of `width` tokens, special ones included in each."""
    network, tokenizer = unwrap(model)
    limit = max_positions(network)
    if width is None:
        if limit is None:
            raise BadInput("This model has no limit of positions; say how wide the windows are.")
        width = limit
    size = checks.count(width, "width", smallest=3)
    if limit is not None and size > limit:
        raise BadInput(f"width is {size} tokens, but the model takes {limit}.")
    shared = checks.count(overlap, "overlap", smallest=0)
    ids, _ = _tokenize(tokenizer, text, False)
    before, after = _frame(tokenizer) if special_tokens else ([], [])
    room = size - len(before) - len(after)
    if shared >= room:
        raise BadInput(f"overlap is {shared} tokens, but a window holds only {room} of the text.")
    windows = []
    for start in range(0, max(1, len(ids) - shared), room - shared):
        inside = ids[start : start + room]
        if len(inside) + len(before) + len(after) < 2:
            break
        special = [True] * len(before) + [False] * len(inside) + [True] * len(after)
        first = start - len(before)
        places = torch.arange(first, first + len(special)).clamp(0, len(ids) - 1)
        windows.append(_sequence(model, before + inside + after, special, places))
    return windows


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens put before and after a text."""
    probe = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a", add_special_tokens=True)["input_ids"]
    for start in range(len(framed) - len(probe) + 1):
        if framed[start : start + len(probe)] == probe:
            return framed[:start], framed[start + len(probe) :]
    return [], []


def _tokenize(tokenizer: Any | None, text: str, special: bool) -> tuple[list[int], list[bool]]:
    if tokenizer is None:
        raise BadInput("This model came without a tokenizer; give token ids instead of text.")
    if not text.strip():
        raise BadInput("The text is empty; give at least two tokens.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"The text has half a character, {text[error.start]!r}, at place {error.start}; "
            "read it as UTF-8."
        ) from None
    encoded = tokenizer(
        text, add_special_tokens=special, return_special_tokens_mask=True, verbose=False
    )
    return list(encoded["input_ids"]), [bool(s) for s in encoded["special_tokens_mask"]]


def _tensor(values: Any, name: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise BadInput(f"{name} must be numbers in lists of one length, or a tensor.") from None


def _check_ids(ids: Tensor, network: Any) -> None:
    if ids.dim() != 1 or (len(ids) and (ids.is_floating_point() or ids.dtype == torch.bool)):
        raise BadInput(
            f"Token ids must be one list of whole numbers, got shape {tuple(ids.shape)}."
        )
    size = getattr(network.config, "vocab_size", None)
    if len(ids) and size is not None and (ids.min() < 0 or ids.max() >= size):
        raise BadInput(f"Token ids must lie between 0 and {size - 1}.")


def _sequence(model: Any, ids: list[int], special: list[bool], places: Tensor) -> Encoded:
    _check_length(len(ids))
    network, tokenizer = unwrap(model)
    tensor = torch.tensor([ids])
    inputs = {"input_ids": tensor}
    if "attention_mask" in inspect.signature(network.base_model.forward).parameters:
        inputs["attention_mask"] = torch.ones_like(tensor)
    names = _names(tokenizer, ids)
    here = {name: tensor.to(network.device) for name, tensor in inputs.items()}
    return Encoded(here, None, names, places, torch.tensor(special), _source(model))


def _ready(model: Any, inputs: Mapping[str, Tensor]) -> Encoded:
    network, tokenizer = unwrap(model)
    ready = {str(key): _tensor(value, str(key)) for key, value in inputs.items()}
    if not ready:
        raise BadInput("The mapping of inputs is empty; give input_ids, pixel_values or the like.")
    sizes = {key: len(value) for key, value in ready.items() if value.dim() > 1}
    if any(size != 1 for size in sizes.values()):
        raise BadInput(f"Capture takes one sequence at a time, but the batch is {sizes}.")
    for key in ("input_ids", "attention_mask"):
        if key in ready and ready[key].dim() != 2:
            raise BadInput(f"{key} must have shape (1, n), got {tuple(ready[key].shape)}.")
    lengths = {ready[key].shape[1] for key in ("input_ids", "attention_mask") if key in ready}
    if len(lengths) > 1:
        raise BadInput(f"attention_mask and input_ids have different lengths, {sorted(lengths)}.")
    keep = None
    if "attention_mask" in ready:
        keep = ready["attention_mask"][0].bool()
        _check_length(int(keep.sum()))
        keep = None if keep.all() else keep
    if "input_ids" in ready:
        ids = ready["input_ids"][0]
        _check_ids(ids, network)
        limit = max_positions(network)
        if limit is not None and len(ids) > limit:
            raise BadInput(f"The input has {len(ids)} tokens and the model takes {limit}.")
        names = _names(tokenizer, [int(i) for i in ids])
    else:
        names = _names(None, range(_patches(network)))
    places = torch.arange(len(names))
    if keep is not None:
        names = tuple(name for name, kept in zip(names, keep, strict=True) if kept)
        places = places[keep]
    _check_length(len(places))
    special = torch.zeros(len(places), dtype=torch.bool)
    ready = {name: tensor.to(network.device) for name, tensor in ready.items()}
    return Encoded(ready, keep, names, places, special, _source(model))


def _patches(network: Any) -> int:
    """Tokens of an image model: its patches and its class token."""
    embeddings = getattr(network.base_model, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    if table is None:
        raise BadInput("The inputs have no input_ids and the model no table of positions.")
    return int(table.shape[1] if hasattr(table, "shape") else table.num_embeddings)


def _check_length(tokens: int) -> None:
    if tokens == 0:
        raise BadInput("The input is empty or all padding; give at least two tokens.")
    if tokens < 2:
        raise BadInput("The text is one token; attention over it has nothing to sample, give more.")


def _names(tokenizer: Any | None, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(map(str, ids) if tokenizer is None else tokenizer.convert_ids_to_tokens(ids))


def _source(model: Any) -> dict[str, Any]:
    if not isinstance(model, LoadedModel):
        return {"model": type(model).__name__}
    named = {name: getattr(model, name) for name in ("weights", "source", "licence")}
    return {"model": model.name, **named, "notes": list(model.notes)}
