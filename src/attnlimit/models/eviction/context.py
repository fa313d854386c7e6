"""State of a cache layer when it is cut, and rotation of queries to later positions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.attention import masked_scores
from attnlimit.models.loading import predicts_tokens
from attnlimit.theory.one_query.first_order import key_variances, squared_distances

Rotation: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Moves queries (H, n, d) by (n,) positions."""

PROPORTIONAL = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles are proportional to the position."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries of one sequence in one layer, oldest first, and their positions."""

    query: Tensor  # (H, n, d)
    positions: Tensor  # (n,)

    def pick(self, index: Tensor) -> Queries:
        """Return some of them."""
        return Queries(self.query[:, index], self.positions[index])

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, eq=False)
class EvictionContext:
    """Keys, values and recorded queries of one sequence in one layer, when its cache is cut.

    There are m slots for each of H_kv heads, some of which may be empty.
    """

    queries: Queries
    key: Tensor  # (H_kv, m, d)
    value: Tensor  # (H_kv, m, d_v)
    offset: Tensor  # (H_kv, m) added to a key's scores by earlier cuts; -inf for an empty slot
    positions: Tensor  # (H_kv, m) of the keys among the sequence's tokens
    length: int  # tokens of the sequence so far
    scale: float
    softcap: float | None
    rotate: Rotation

    @property
    def occupied(self) -> Tensor:
        """Slots that hold a key, (H_kv, m)."""
        return self.offset > -torch.inf

    def attention(self, queries: Queries, *, causal: bool = False) -> Tensor:
        """Weights of queries on the keys, (H_kv, G n, m): the heads of a group side by side."""
        groups = len(queries.query) // len(self.key)
        query = queries.query.reshape(len(self.key), -1, queries.query.shape[-1])
        visible = None
        if causal:
            visible = self.positions[:, None] <= queries.positions.repeat(groups)[:, None]
        scores = self.scale * query @ self.key.transpose(1, 2)
        scores = masked_scores(scores, self.softcap, self.offset[:, None], visible)
        return torch.softmax(scores, -1)

    def moved(self, queries: Queries, start: int, ahead: int) -> Queries:
        """Re-rotate queries to positions from `start` on, spread evenly over `ahead`."""
        device = queries.positions.device
        steps = torch.arange(len(queries), device=device) * ahead // max(1, len(queries))
        positions = start + steps.roll(len(queries) // 2)
        return Queries(self.rotate(queries.query, positions - queries.positions), positions)

    def squared_errors(self, queries: Queries, *, causal: bool = False) -> Tensor:
        """Mean of P^2 |v - Gamma|^2 over queries, (H_kv, m)."""
        weights = self.attention(queries, causal=causal)
        distances = squared_distances(self.value, weights @ self.value)
        return key_variances(weights, 1.0, distances).mean(1)


def evictable_layers(network: Any) -> list[int]:
    """Layers of a causal model whose cache grows with the text; refuse a model without any."""
    if not predicts_tokens(network):
        raise BadInput(
            f"{type(network).__name__} does not generate, so it has no cache to cut; "
            "use Evict with a causal model."
        )
    config, depth = network.config, int(network.config.num_hidden_layers)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        sliding = getattr(config, "sliding_window", None) is not None
        kinds = ["sliding_attention" if sliding else "full_attention"] * depth
    layers = [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    if not layers:
        raise BadInput(
            f"Every layer of {type(network).__name__} has a sliding window of "
            f"{getattr(config, 'sliding_window', None)} tokens, so its cache is bounded already "
            "and cannot be cut."
        )
    return layers


def rotation_of(network: Any) -> Rotation:
    """Return how a model's queries move to another position; they stay if it has no rotary ones.

    The model's own functions are used, and held to what a rotation is. Where kinds of layers have
    rotations of their own, it is that of layers with full attention: no others are cut.
    """
    base = network.base_model
    rotary = getattr(base, "rotary_emb", None)
    if rotary is None:
        return lambda query, steps: query
    apply: Any = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
    kind, scaling, options = getattr(rotary, "rope_type", "default"), "attention_scaling", {}
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        options, scaling = {"layer_type": "full_attention"}, "full_attention_attention_scaling"
        kind = kind.get("full_attention", "") if isinstance(kind, dict) else kind

    def rotate(query: Tensor, steps: Tensor) -> Tensor:
        cos, sin = rotary(query, steps[None].to(query.device), **options)
        size = float(getattr(rotary, scaling, 1.0))
        rotated, _ = apply(query[None], query[None], cos / size, sin / size)
        return rotated[0]

    if apply is None or kind not in PROPORTIONAL or not _is_rotation(rotate, network.config):
        raise BadInput(
            f"The rotary positions of {type(network).__name__} are of an unknown kind, so queries "
            "cannot be moved to later positions; use StreamingLLM, SnapKV or Tova instead."
        )
    return rotate


def _is_rotation(rotate: Rotation, config: Any) -> bool:
    """Whether moving by zero does nothing, moving twice adds up, and lengths are kept."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    near = partial(torch.allclose, atol=1e-4, rtol=1e-4)
    query = torch.linspace(-1, 1, 3 * size).reshape(1, 3, size)
    steps = torch.tensor([0, 3, -5])
    try:
        once = rotate(query, steps)
        twice = rotate(once, steps)
        both = rotate(query, 2 * steps)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError):
        return False
    return (
        once.shape == query.shape
        and near(once[:, 0], query[:, 0])
        and near(twice, both)
        and near(once.norm(dim=-1), query.norm(dim=-1))
        and not near(once[:, 1], query[:, 1])
    )
