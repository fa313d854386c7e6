"""What does a layer's cache hold for each sequence? The same questions, cut or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from attnlimit.errors import BadInput
from attnlimit.models.spend.evict.cache import CutLayer, Kept
from attnlimit.models.spend.evict.rule import Eviction
from attnlimit.models.spend.evict.turn import Turn
from attnlimit.models.spend.evict.watched import Queries, Watched


@dataclass(frozen=True, eq=False)
class Passed:
    """What a pass showed of one sequence in one layer."""

    query: Tensor  # (H, n, d), those to be remembered
    back: Tensor  # (n,) how many positions before the end they are
    slots: Tensor  # (m,) of the layer's cache that hold keys of this sequence
    scale: float
    softcap: float | None


class Held:
    """A layer's cache right after a pass, and what the pass showed of it by sequence."""

    def __init__(self, layer: Any, passed: Mapping[int, Passed]) -> None:
        if type(layer) not in (DynamicLayer, CutLayer):
            raise BadInput(
                f"A cache of {type(layer).__name__} cannot be cut; use the cache that grows "
                "(transformers' DynamicCache) and a model without sliding windows."
            )
        self.layer, self.passed = layer, passed
        self.was_cut = isinstance(layer, CutLayer)
        self.rows, self.heads = layer.keys.shape[:2]
        self.first = layer.rectangle("added").shape[-1] if self.was_cut else 0  # slot since the cut

    def length(self, row: int) -> int:
        """Tokens of a sequence so far, padding left out."""
        before = self.layer.lengths[row] if self.was_cut else 0
        return before + len(self._since(row))

    def queries(self, row: int, rule: Eviction) -> Queries:
        """Queries of a sequence to be remembered, oldest first."""
        found, length = self.passed[row], self.length(row)
        queries = Queries(found.query, length - found.back)
        earlier = self.layer.watched[row] if self.was_cut else None
        if earlier is not None:
            queries = earlier.joined(queries)
        return rule.thinned(queries, length)

    def watched(self, row: int, turn: Turn, rule: Eviction) -> Watched:
        """Everything a rule asks for."""
        found, keys, queries = self.passed[row], self._keys(row), self.queries(row, rule)
        return Watched(
            queries=Queries(queries.query.float(), queries.places),
            key=keys.key.float(),
            value=keys.value.float(),
            added=keys.added,
            positions=keys.positions,
            length=self.length(row),
            scale=found.scale,
            softcap=found.softcap,
            turn=turn,
        )

    def cut(self, added: Sequence[Tensor | None], rule: Eviction) -> CutLayer:
        """Return the cache with the keys left to whose scores something finite is added."""
        kept, watched = [], []
        for row, more in enumerate(added):
            keys = self._keys(row)
            total = keys.added if more is None else _sum(keys.added, more)
            rows = zip(keys.key, keys.value, total, keys.positions, total > -torch.inf, strict=True)
            kept.append([Kept(k[i], v[i], a[i], p[i]) for k, v, a, p, i in rows])
            watched.append(self.queries(row, rule) if row in self.passed else None)
        lengths = [self.length(row) for row in range(self.rows)]
        return CutLayer(kept, watched, lengths, self.layer.get_seq_length(), rule.sinks)

    def remember(self, rule: Eviction) -> None:
        """Remember the queries of a pass after which nothing is cut."""
        for row in self.passed:
            self.layer.watched[row] = self.queries(row, rule)

    def _since(self, row: int) -> Tensor:
        """Places, among the tokens since the cut, of those that are not padding."""
        if row not in self.passed:
            return torch.arange(0)
        slots = self.passed[row].slots
        return slots[slots >= self.first] - self.first

    def _keys(self, row: int) -> Kept:
        """Keys of a sequence, the heads side by side: (H_kv, m, ...)."""
        since = self._since(row)
        key, value = self.layer.keys[row], self.layer.values[row]
        if len(since) < key.shape[1]:
            key, value = key[:, since], value[:, since]
        before = self.layer.lengths[row] if self.was_cut else 0
        places = torch.arange(before, before + len(since), dtype=torch.int32, device=key.device)
        none = key.new_zeros(key.shape[:2], dtype=torch.float32)  # precise whatever keys are
        new = Kept(key, value, none, places.expand(self.heads, -1))
        if not self.was_cut:
            return new
        return Kept(*(
            torch.cat([self.layer.rectangle(name)[row], getattr(new, name)], dim=1)
            for name in ("key", "value", "added", "positions")
        ))  # fmt: skip


def _sum(added: Tensor, more: Tensor) -> Tensor:
    """What is added to scores, after another cut; layers may have fewer slots than the widest."""
    return added + more[:, : added.shape[1]].to(added.dtype)
