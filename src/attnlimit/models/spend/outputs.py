"""What does a model give for one sequence? Last hidden states, and logits if it predicts tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attnlimit.models.capture.encode import Encoded
from attnlimit.models.capture.interface import precise


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs over one sequence, padding left out."""

    hidden: Tensor  # (N, d) last hidden states
    logits: Tensor | None  # (N, vocabulary) of the next token; None for encoders

    @property
    def embedding(self) -> Tensor:
        """Mean of the last hidden states, (d,)."""
        return self.hidden.mean(0)


def predicts_tokens(network: Any) -> bool:
    """Whether a transformers model predicts the next token."""
    name = type(network).__name__
    return "CausalLM" in name or "LMHead" in name


def run(network: Any, encoded: Encoded) -> Outputs:
    """Run a model once on a sequence, without a cache."""
    cache = {"use_cache": False} if getattr(network.config, "use_cache", None) else {}
    if not predicts_tokens(network):
        hidden = precise(network.base_model(**encoded.inputs, **cache).last_hidden_state[0])
        return Outputs(hidden if encoded.keep is None else hidden[encoded.keep], None)
    states: list[Tensor] = []

    def keep_hidden(module: Any, inputs: Any, output: Any) -> None:
        states.append(precise(output.last_hidden_state[0]))

    handle = network.base_model.register_forward_hook(keep_hidden)
    try:
        logits = precise(network(**encoded.inputs, **cache).logits[0])
    finally:
        handle.remove()
    if encoded.keep is None:
        return Outputs(states[0], logits)
    return Outputs(states[0][encoded.keep], logits[encoded.keep])
