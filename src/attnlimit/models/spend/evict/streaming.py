"""The first keys and the last: StreamingLLM's rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.models.spend.evict.rule import Eviction, check_sizes
from attnlimit.models.spend.evict.watched import Watched


@dataclass(frozen=True)
class StreamingLLM(Eviction):
    """`sinks` first keys, and the most recent ones; keys stay where they were."""

    keep: float = 0.25
    sinks: int = 4
    again: int | None = None

    def __post_init__(self) -> None:
        check_sizes(self)

    def importance(self, watched: Watched) -> Tensor:
        place = watched.positions.double()
        return place.masked_fill(watched.positions < self.sinks, torch.inf)
