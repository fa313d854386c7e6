"""What does a cache know when it is cut? Its keys, and the queries that were watched."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnlimit.models.spend.evict.turn import Turn


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries of one sequence in one layer, oldest first, and their positions."""

    query: Tensor  # (H, n, d)
    places: Tensor  # (n,)

    def pick(self, index: Tensor) -> Queries:
        """Return some of them."""
        return Queries(self.query[:, index], self.places[index])

    def joined(self, later: Queries) -> Queries:
        """Return these and later ones."""
        return Queries(
            torch.cat([self.query, later.query], dim=1), torch.cat([self.places, later.places])
        )

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, eq=False)
class Watched:
    """One sequence in one layer at the moment of a cut; m slots, some of which may be empty."""

    queries: Queries
    key: Tensor  # (H_kv, m, d)
    value: Tensor  # (H_kv, m, d_v)
    added: Tensor  # (H_kv, m) to the scores of a key, by earlier cuts; -inf where a slot is empty
    positions: Tensor  # (H_kv, m) of the keys among the sequence's tokens
    length: int  # tokens of the sequence so far
    scale: float
    softcap: float | None
    turn: Turn

    @property
    def here(self) -> Tensor:
        """Which slots hold a key, (H_kv, m)."""
        return self.added > -torch.inf

    def weights(self, queries: Queries, *, causal: bool = False) -> Tensor:
        """Attention of queries on the keys, (H_kv, G n, m): the heads of a group side by side."""
        scores = self.scale * self._by_group(queries.query) @ self.key.transpose(1, 2)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        scores = scores + self.added[:, None]
        if causal:
            groups = len(queries.query) // len(self.key)
            later = (
                self.positions[:, None] > queries.places.repeat(groups)[:, None]
            )  # (H_kv, Gn, m)
            scores = scores.masked_fill(later, -torch.inf)
        return torch.softmax(scores, -1)

    def without(self, dropped: Tensor) -> Watched:
        """Return the same with some slots empty."""
        return replace(self, added=self.added.masked_fill(dropped, -torch.inf))

    def moved(self, queries: Queries, start: int, ahead: int) -> Queries:
        """Return the queries as they would be from `start` on, spread evenly over `ahead`."""
        device = queries.places.device
        steps = torch.arange(len(queries), device=device) * ahead // max(1, len(queries))
        places = start + steps.roll(len(queries) // 2)
        return Queries(self.turn(queries.query, places - queries.places), places)

    def squared_errors(self, queries: Queries, *, causal: bool = False) -> Tensor:
        """Mean of P^2 |v - Gamma|^2 over queries, (H_kv, m)."""
        weights = self.weights(queries, causal=causal)
        output = weights @ self.value
        distance = (
            self.value.square().sum(-1)[:, None]
            - 2 * output @ self.value.transpose(1, 2)
            + output.square().sum(-1, keepdim=True)
        )
        return (weights.square() * distance.clamp_min(0)).mean(1)

    def _by_group(self, query: Tensor) -> Tensor:
        return query.reshape(len(self.key), -1, query.shape[-1])
