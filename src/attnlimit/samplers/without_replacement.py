"""Different keys, all equally likely: a uniform subset of what a query sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.samplers.drawn import Drawn


@dataclass(frozen=True)
class WithoutReplacement(Drawn):
    """`n` different visible keys, or all of them where there are fewer."""

    draws = "without replacement"

    @property
    def name(self) -> str:
        return "without replacement" if self.n is None else f"{self.n} without replacement"

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        visible = scores > -torch.inf
        chance = (self.size / visible.sum(-1, keepdim=True).to(scores.dtype)).clamp_max(1.0)
        return chance.expand(scores.shape) * visible

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Zero for the keys drawn."""
        visible = scores > -torch.inf
        ranks = torch.rand(
            scores.shape, generator=generator, device=scores.device, dtype=torch.double
        ).masked_fill_(~visible, 2.0)
        size = min(self.size, scores.shape[-1])
        edge = ranks.kthvalue(size, dim=-1, keepdim=True).values
        return torch.zeros_like(scores).masked_fill_((ranks > edge) | ~visible, -torch.inf)
