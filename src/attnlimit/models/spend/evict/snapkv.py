"""Keys that the last queries looked at, smoothed over neighbours: SnapKV's rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.models.spend.evict.rule import Eviction, check_sizes
from attnlimit.models.spend.evict.watched import Watched


@dataclass(frozen=True)
class SnapKV(Eviction):
    """Mean attention of the last `window` queries, averaged over `kernel` neighbours and the group.

    The window's own keys always stay.
    """

    keep: float = 0.25
    window: int = 64
    kernel: int = 5
    again: int | None = None

    def __post_init__(self) -> None:
        check_sizes(self)
        checks.count(self.window, "window")
        checks.count(self.kernel, "kernel")

    @property
    def last(self) -> int:  # type: ignore[override]
        """The window's queries."""
        return self.window

    def importance(self, watched: Watched) -> Tensor:
        seen = watched.weights(watched.queries, causal=True).mean(1)
        old = watched.positions < watched.length - self.window
        pooled = torch.nn.functional.avg_pool1d(
            seen.masked_fill(~old, 0.0), self.kernel, stride=1, padding=self.kernel // 2
        )[..., : seen.shape[-1]]
        return pooled.masked_fill(~old, torch.inf)
