"""Keys that Gaussian queries at positions to come would look at: Expected Attention's rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.models.spend.evict.rule import Eviction, check_sizes
from attnlimit.models.spend.evict.watched import Watched


@dataclass(frozen=True)
class ExpectedAttention(Eviction):
    """Mean of exp(score) over queries of the prompt's mean and covariance, times the value's norm.

    Queries are taken back to position zero, and mean and covariance turned by the average rotation
    over the next `ahead` positions.
    """

    keep: float = 0.25
    ahead: int = 512
    sinks: int = 4
    again: int | None = None

    earlier = None

    def __post_init__(self) -> None:
        check_sizes(self)
        checks.count(self.ahead, "ahead")

    def importance(self, watched: Watched) -> Tensor:
        queries = watched.queries
        still = watched.turn(queries.query, -queries.places)
        mean = still.mean(1, keepdim=True)
        spread = still - mean
        cov = spread.transpose(1, 2) @ spread / still.shape[1]
        turn = self._average_turn(watched)
        mean, cov = mean @ turn, turn.T @ cov @ turn
        heads, groups = len(mean), len(mean) // len(watched.key)
        key = watched.key.repeat_interleave(groups, dim=0)
        scores = watched.scale * (key @ mean.transpose(1, 2))[..., 0]
        scores = scores + watched.scale**2 / 2 * ((key @ cov) * key).sum(-1)
        scores = scores + watched.added.repeat_interleave(groups, dim=0)
        first = watched.positions < self.sinks
        weights = torch.softmax(
            scores.masked_fill(first.repeat_interleave(groups, dim=0), -torch.inf), -1
        )
        shared = weights.view(heads // groups, groups, -1).mean(1)
        return (shared * watched.value.norm(dim=-1)).masked_fill(first, torch.inf)

    def _average_turn(self, watched: Watched) -> Tensor:
        """Rotation (d, d) of rows, averaged over the positions to come."""
        size = watched.key.shape[-1]
        unit = torch.eye(size, dtype=watched.key.dtype, device=watched.key.device)[:, None].expand(
            size, self.ahead, size
        )
        steps = watched.length + torch.arange(self.ahead, device=watched.key.device)
        return watched.turn(unit, steps).mean(1)
