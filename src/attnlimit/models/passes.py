"""One pass of a model over a sequence: its inputs, its outputs, and distances of two outputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.attention import precise
from attnlimit.models.loading import LoadedModel, max_positions, predicts_tokens, tokenize


@dataclass(frozen=True, eq=False)
class Encoded:
    """One sequence as the model takes it, padding included."""

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


def called_module(network: Any) -> Any:
    """Return the module that a pass of a model calls: of some causal ones (OPT) the decoder."""
    base = network.base_model
    decoder = network.get_decoder() if hasattr(network, "get_decoder") else None
    alone = decoder is not None and decoder is getattr(base, "decoder", None)
    return decoder if alone and not network.config.is_encoder_decoder else base


def encode(
    model: Any,
    text: str | Sequence[int] | Tensor | Mapping[str, Tensor],
    *,
    truncate: bool = False,
) -> Encoded:
    """Turn text, token ids or ready inputs into one sequence."""
    network, tokenizer = unwrap(model)
    if isinstance(text, Mapping):
        return _encoded(model, {str(key): _tensor(value, str(key)) for key, value in text.items()})
    if isinstance(text, str):
        ids, special = tokenize(tokenizer, text)
    else:
        numbers = _tensor(text, "Token ids")
        numbers = numbers[0] if numbers.dim() == 2 and len(numbers) == 1 else numbers
        _check_ids(numbers, network)
        ids, special = [int(i) for i in numbers], [False] * len(numbers)
    limit = max_positions(network)
    if limit is not None and len(ids) > limit and truncate:
        tail = next((i for i, marked in enumerate(reversed(special)) if not marked), len(ids))
        keep = [*range(limit - tail), *range(len(ids) - tail, len(ids))]  # and special ones last
        ids, special = ([values[i] for i in keep] for values in (ids, special))
    inputs = {"input_ids": torch.tensor([ids], dtype=torch.long)}
    if "attention_mask" in inspect.signature(network.base_model.forward).parameters:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    return _encoded(model, inputs, torch.tensor(special))


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


def _encoded(model: Any, inputs: dict[str, Tensor], special: Tensor | None = None) -> Encoded:
    """Check ready inputs, and name their tokens."""
    network, tokenizer = unwrap(model)
    if not inputs:
        raise BadInput("The mapping of inputs is empty; give input_ids, pixel_values or the like.")
    sizes = {key: len(value) for key, value in inputs.items() if value.dim() > 1}
    if any(size != 1 for size in sizes.values()):
        raise BadInput(f"Capture takes one sequence at a time, but the batch is {sizes}.")
    for key in ("input_ids", "attention_mask"):
        if key in inputs and inputs[key].dim() != 2:
            raise BadInput(f"{key} must have shape (1, n), got {tuple(inputs[key].shape)}.")
    if "input_ids" in inputs:
        ids = inputs["input_ids"][0]
        _check_ids(ids, network)
        limit = max_positions(network)
        if limit is not None and len(ids) > limit:
            raise BadInput(
                f"The text has {len(ids)} tokens and the model takes {limit}; "
                "cut it there with truncate=True, or capture its parts."
            )
        numbers = [int(i) for i in ids]
        names = map(str, numbers) if tokenizer is None else tokenizer.convert_ids_to_tokens(numbers)
    else:
        names = map(str, range(_patches(network)))
    tokens = tuple(names)
    keep = torch.ones(len(tokens), dtype=torch.bool)
    if "attention_mask" in inputs:
        keep = inputs["attention_mask"][0].bool()
    if len(keep) != len(tokens):
        raise BadInput(f"attention_mask has {len(keep)} entries for {len(tokens)} tokens.")
    places = torch.nonzero(keep).ravel()
    if len(places) < 2:
        what = "one token" if len(places) else "empty or all padding"
        raise BadInput(
            f"The input is {what}; attention over it has nothing to sample, give two tokens."
        )
    source: dict[str, Any] = {"model": type(model).__name__}
    if isinstance(model, LoadedModel):
        source = {name: getattr(model, name) for name in ("weights", "source", "licence")}
        source |= {"model": model.name, "notes": list(model.notes)}
    return Encoded(
        inputs={name: tensor.to(network.device) for name, tensor in inputs.items()},
        keep=None if bool(keep.all()) else keep,
        tokens=tuple(tokens[i] for i in places.tolist()),
        positions=places,
        special=torch.zeros(len(places), dtype=torch.bool) if special is None else special,
        source=source,
    )


def _patches(network: Any) -> int:
    """Tokens of an image model: its patches and its class token."""
    embeddings = getattr(network.base_model, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    if table is None:
        raise BadInput(
            "The inputs have no input_ids and the model no table of positions; give input_ids."
        )
    return int(table.shape[1] if hasattr(table, "shape") else table.num_embeddings)


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs over one sequence, padding left out."""

    hidden: Tensor  # (N, d) last hidden states
    logits: Tensor | None  # (N, vocabulary) of the next token; None for encoders

    @property
    def embedding(self) -> Tensor:
        """Mean of the last hidden states, (d,)."""
        return self.hidden.mean(0)


def run(network: Any, encoded: Encoded, past: Any = None) -> Outputs:
    """Run a model once on a sequence without a cache, or on what follows the tokens of `past`."""
    inputs: dict[str, Any] = dict(encoded.inputs)
    if past is not None:
        inputs = {"input_ids": inputs["input_ids"][:, past.get_seq_length() :]}
        inputs |= {"past_key_values": past, "use_cache": True}
    elif getattr(network.config, "use_cache", None):
        inputs["use_cache"] = False
    states: list[Tensor] = []

    def keep_hidden(module: Any, inputs: Any, output: Any) -> None:
        states.append(precise(output.last_hidden_state[0]))

    causal, keep = predicts_tokens(network), slice(None) if encoded.keep is None else encoded.keep
    inner = called_module(network) if causal else network.base_model
    handle = inner.register_forward_hook(keep_hidden)
    try:
        output = (network if causal else inner)(**inputs)
    finally:
        handle.remove()
    return Outputs(states[0][keep], precise(output.logits[0])[keep] if causal else None)


def divergence(dense: Tensor, changed: Tensor) -> Tensor:
    """KL divergence (N,) of next-token log probabilities (N, vocabulary), in nats."""
    return (dense.exp() * (dense - changed)).sum(-1)


def mean_kl(dense: Tensor, changed: Tensor) -> float:
    """Mean of `divergence`."""
    return max(0.0, float(divergence(dense, changed).mean()))


def cosine_loss(dense: Tensor, changed: Tensor) -> float:
    """1 - cosine of two embeddings (d,)."""
    return max(0.0, 1 - float(torch.cosine_similarity(dense.double(), changed.double(), dim=0)))


def token_distances(dense: Tensor, changed: Tensor, ids: Tensor) -> dict[str, float]:
    """KL, perplexities and agreement of next-token log probabilities (N, vocabulary).

    `ids` (N,) are the tokens at the same positions.
    """
    losses = [float(-logs[:-1].gather(1, ids[1:, None]).mean()) for logs in (dense, changed)]
    return {
        "kl": mean_kl(dense, changed),
        "dense_perplexity": float(torch.tensor(losses[0]).exp()),
        "perplexity": float(torch.tensor(losses[1]).exp()),
        "top1": float((dense.argmax(-1) == changed.argmax(-1)).float().mean()),
    }
