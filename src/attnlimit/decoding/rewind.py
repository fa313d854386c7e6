"""Caches put back to an earlier state, and decoded tokens that are read again from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from attnlimit.decoding.cache import DecodingLayer


def snapshot(cache: DynamicCache) -> tuple[dict[int, int], dict[int, dict[str, Any]]]:
    """Lengths of the layers of fast decoding, and the state of the others, by their numbers."""
    lengths, others = {}, {}
    for number, layer in enumerate(cache.layers):
        if isinstance(layer, DecodingLayer):
            lengths[number] = layer.length
        else:
            others[number] = dict(vars(layer))
    return lengths, others


def put_back(
    cache: DynamicCache, lengths: dict[int, int], others: dict[int, dict[str, Any]]
) -> None:
    """Put a cache back to where it was when a `snapshot` was taken."""
    for number, layer in enumerate(cache.layers):
        if isinstance(layer, DecodingLayer):
            layer.rewind(lengths[number])
        else:
            vars(layer).clear()
            vars(layer).update(others[number])


@contextmanager
def rewound(cache: DynamicCache) -> Iterator[None]:
    """Put a cache back, at the end of a `with` block, to where it was at its beginning."""
    before = snapshot(cache)
    try:
        yield
    finally:
        put_back(cache, *before)


class DecodedBlock:
    """Decoded tokens that will be read again, and the cache as it was before them."""

    def __init__(self, size: int, cache: Any) -> None:
        self.size, self.cache = size, cache
        self.given: dict[str, list[Tensor]] = {}  # of each step, by its name
        self.logs: list[Tensor] = []  # (B, vocabulary) of each
        self.lengths, self.others = snapshot(cache)
        self.seen = int(cache.get_seq_length())

    @property
    def full(self) -> bool:
        """Whether the block has all its tokens."""
        return len(self.logs) >= self.size

    def take(self, ids: Tensor, kwargs: dict[str, Any]) -> None:
        """Keep the inputs of a step."""
        for name in ("position_ids", "cache_position"):
            if kwargs.get(name) is not None:
                self.given.setdefault(name, []).append(kwargs[name])
        self.given.setdefault("input_ids", []).append(ids)

    def rewind(self) -> None:
        """Put the cache back to where it was before the block."""
        put_back(self.cache, self.lengths, self.others)

    def inputs(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Inputs of a pass over the whole block."""
        joined: dict[str, Any] = {name: torch.cat(x, -1) for name, x in self.given.items()}
        mask = kwargs.get("attention_mask")
        if mask is not None:
            joined["attention_mask"] = mask[:, : self.seen + len(self.logs)]
        return joined | {"logits_to_keep": 0}
