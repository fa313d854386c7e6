"""The best keys of each query."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.samplers.base import Sampler


@dataclass(frozen=True)
class TopK(Sampler):
    """The `k` keys of the highest score."""

    k: int

    draws = "nothing"

    def __post_init__(self) -> None:
        checks.count(self.k, "k", smallest=1)

    @property
    def name(self) -> str:
        return f"top {self.k}"

    def sized(self, n: int) -> TopK:
        return TopK(n)

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        best = scores.topk(min(self.k, scores.shape[-1]), dim=-1).indices
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)
