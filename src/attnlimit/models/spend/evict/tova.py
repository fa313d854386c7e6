"""Keys that the last query looks at, all heads alike: TOVA's rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.models.spend.evict.rule import Eviction, check_sizes
from attnlimit.models.spend.evict.watched import Watched


@dataclass(frozen=True)
class Tova(Eviction):
    """Attention of the last query, mean over all heads; the last key always stays."""

    keep: float = 0.25
    again: int | None = None

    last = 1

    def __post_init__(self) -> None:
        check_sizes(self)

    def importance(self, watched: Watched) -> Tensor:
        seen = watched.weights(watched.queries, causal=True).mean((0, 1)).expand(watched.here.shape)
        return seen.masked_fill(watched.positions >= watched.length - 1, torch.inf)
