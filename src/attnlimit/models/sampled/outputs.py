"""Outputs and embeddings of a model, dense or sampled, and distances between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.captured.captured import precise
from attnlimit.models.captured.dense import attend_dense
from attnlimit.models.captured.encode import Encoded, called_module, encode, unwrap
from attnlimit.models.captured.interface import attention_as
from attnlimit.models.loading.model import predicts_tokens
from attnlimit.models.sampled.attention import Samplers, sampled_attention


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs over one sequence, padding left out."""

    hidden: Tensor  # (N, d) last hidden states
    logits: Tensor | None  # (N, vocabulary) of the next token; None for encoders

    @property
    def embedding(self) -> Tensor:
        """Mean of the last hidden states, (d,)."""
        return self.hidden.mean(0)


def run(network: Any, encoded: Encoded) -> Outputs:
    """Run a model once on a sequence, without a cache."""
    cache = {"use_cache": False} if getattr(network.config, "use_cache", None) else {}
    states: list[Tensor] = []

    def keep_hidden(module: Any, inputs: Any, output: Any) -> None:
        states.append(precise(output.last_hidden_state[0]))

    causal, keep = predicts_tokens(network), slice(None) if encoded.keep is None else encoded.keep
    inner = called_module(network) if causal else network.base_model
    handle = inner.register_forward_hook(keep_hidden)
    try:
        output = (network if causal else inner)(**encoded.inputs, **cache)
    finally:
        handle.remove()
    return Outputs(states[0][keep], precise(output.logits[0])[keep] if causal else None)


def mean_kl(dense: Tensor, changed: Tensor) -> float:
    """Mean KL divergence of next-token log probabilities (N, vocabulary), in nats."""
    return max(0.0, float((dense.exp() * (dense - changed)).sum(-1).mean()))


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
