"""What would a query have asked from a later place? Rotary positions, turned by a distance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from attnlimit.errors import BadInput

Turn: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Moves queries (H, n, d) on by (n,) positions."""

PLAIN = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles are proportional to the position."""


def turn_of(network: Any) -> Turn:
    """Return how a model's queries move to another position; they stay as they are without rotary.

    The model's own functions are used, and held to what a rotation is.
    """
    base = network.base_model
    rotary = getattr(base, "rotary_emb", None)
    if rotary is None:
        return lambda query, steps: query
    apply: Any = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
    kind = getattr(rotary, "rope_type", "default")

    def turn(query: Tensor, steps: Tensor) -> Tensor:
        cos, sin = rotary(query, steps[None].to(query.device))
        size = float(getattr(rotary, "attention_scaling", 1.0))
        turned, _ = apply(query[None], query[None], cos / size, sin / size)
        return turned[0]

    if apply is None or kind not in PLAIN or not _turns(turn, network.config):
        raise BadInput(
            f"The positions of {type(network).__name__} are rotated in a way not understood here, "
            "so the law of its queries to come is not known; its cache cannot be cut."
        )
    return turn


def _turns(turn: Turn, config: Any) -> bool:
    """Whether turning by zero does nothing, turning twice adds up, and lengths are kept."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    query = torch.linspace(-1, 1, 3 * size).reshape(1, 3, size)
    steps = torch.tensor([0, 3, -5])
    try:
        once = turn(query, steps)
        twice = turn(once, steps)
        both = turn(query, 2 * steps)
    except (RuntimeError, TypeError, ValueError):
        return False
    return (
        once.shape == query.shape
        and _near(once[:, 0], query[:, 0])
        and _near(twice, both)
        and _near(once.norm(dim=-1), query.norm(dim=-1))
        and not _near(once[:, 1], query[:, 1])
    )


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-4, rtol=1e-4)
