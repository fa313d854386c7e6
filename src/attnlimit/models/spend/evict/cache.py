"""How does a cache hold fewer keys? Every KV head its own, one after the other, without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from attnlimit.errors import BadInput
from attnlimit.models.capture.slots import Slots, mark
from attnlimit.models.spend.evict.watched import Queries


@dataclass(frozen=True, eq=False)
class Kept:
    """Keys in the order of their positions: of one KV head (n, ...), or of several (H, n, ...)."""

    key: Tensor  # (n, d)
    value: Tensor  # (n, d_v)
    added: Tensor  # (n,) to their scores
    positions: Tensor  # (n,) among the sequence's tokens

    @property
    def bytes(self) -> int:
        """Memory they take."""
        return sum(one.nbytes for one in (self.key, self.value, self.added, self.positions))


class CutLayer(DynamicLayer):
    """A layer's cache after a cut: the keys kept by each head, and all tokens since.

    The inherited `keys` and `values` hold the tokens since the cut. The model is told the true
    length, so that positions and masks of tokens to come are right.
    """

    keys: Tensor
    values: Tensor

    def __init__(
        self,
        kept: list[list[Kept]],
        watched: list[Queries | None],
        lengths: list[int],
        before: int,
        sinks: int,
    ) -> None:
        super().__init__()
        self.kept = kept  # by sequence and KV head
        self.watched = watched  # by sequence
        self.lengths = lengths  # tokens of each sequence at the cut, padding left out
        self.before = before  # tokens at the cut, padding included
        self.lead = min(sinks, *(len(one.added) for row in kept for one in row))
        first = kept[0][0]
        self.dtype, self.device = first.key.dtype, first.key.device
        shape = (len(kept), len(kept[0]), 0)
        self.keys = first.key.new_empty(*shape, first.key.shape[-1])
        self.values = first.value.new_empty(*shape, first.value.shape[-1])
        self.is_initialized = True

    @property
    def fresh(self) -> int:
        """Tokens since the cut."""
        return int(self.keys.shape[-2])

    @property
    def bytes(self) -> int:
        """Memory of keys and values, and of what goes with them."""
        kept = sum(one.bytes for row in self.kept for one in row)
        return kept + self.keys.nbytes + self.values.nbytes

    @property
    def dense_bytes(self) -> int:
        """Memory that all keys and values would take."""
        rows, heads, _, size = self.keys.shape
        size += self.values.shape[-1]
        return int(rows * heads * self.get_seq_length() * size * self.keys.element_size())

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Take new tokens, and hand on a rectangle of slots (`attnlimit.models.capture.slots`)."""
        super().update(key_states, value_states)
        added = torch.nn.functional.pad(self.rectangle("added"), (0, self.fresh))
        key = torch.cat([self.rectangle("key"), self.keys], dim=2)
        value = torch.cat([self.rectangle("value"), self.values], dim=2)
        return mark(key, Slots(added, self.fresh)), value

    def rectangle(self, name: str) -> Tensor:
        """One field of all kept keys, (B, H_kv, s, ...); heads with fewer have empty slots.

        These come after the first keys, so that sinks stay first and recent keys last.
        """
        most = max(len(one.added) for row in self.kept for one in row)
        empty = -torch.inf if name == "added" else 0
        rows = []
        for one in (one for row in self.kept for one in row):
            values = getattr(one, name)
            gap = values.new_full((most - len(values), *values.shape[1:]), empty)
            rows.append(torch.cat([values[: self.lead], gap, values[self.lead :]]))
        return torch.stack(rows).unflatten(0, (len(self.kept), -1))

    def get_seq_length(self) -> int:
        """Tokens seen, kept or not."""
        return self.before + self.fresh

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, if they came after the cut."""
        if abs(tokens_to_remove) > self.fresh:
            raise BadInput("A cut cache cannot be taken back to before the cut.")
        super().crop(tokens_to_remove)

    def reset(self) -> None:
        """Refuse: what was dropped cannot be undone."""
        raise BadInput("A cut cache cannot be used for another text; make a new one.")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Choose sequences, as beam search does."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sequence."""
        self.batch_select_indices(torch.arange(len(self.kept)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Choose sequences."""
        chosen = torch.arange(len(self.kept))[indices.cpu()].tolist()
        self.keys, self.values = self.keys[chosen], self.values[chosen]
        for name in ("kept", "watched", "lengths"):
            own = getattr(self, name)
            setattr(self, name, [own[row] for row in chosen])
