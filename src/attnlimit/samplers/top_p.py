"""The fewest keys that hold a share of the weight (as in Twilight): as many as a query needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler


@dataclass(frozen=True)
class TopP(Sampler):
    """The fewest keys that together hold at least `share` of the attention weight."""

    share: float

    draws = "nothing"

    def __post_init__(self) -> None:
        if not 0 < checks.real_number(self.share, "share") <= 1:
            raise BadInput(f"share must lie in (0, 1], got {self.share:g}.")

    @property
    def name(self) -> str:
        return f"top {self.share:.4g} of the weight"

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        weights, order = torch.sort(torch.softmax(scores, -1), dim=-1, descending=True)
        before = torch.cumsum(weights, -1) - weights
        needed = before < self.share
        return torch.zeros_like(needed).scatter_(-1, order, needed)
