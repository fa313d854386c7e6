"""Different keys, all equally likely: a uniform subset of what a query sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Draws, Sampler


@dataclass(frozen=True)
class WithoutReplacement(Sampler):
    """`n` different visible keys, or all of them where there are fewer."""

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None:
            checks.count(self.n, "n", smallest=1)

    @property
    def draws(self) -> Draws:
        """Keys come once."""
        return "without replacement"

    @property
    def name(self) -> str:
        """How many."""
        return "without replacement" if self.n is None else f"{self.n} without replacement"

    def sized(self, n: int) -> WithoutReplacement:
        """Draw `n` keys instead."""
        return WithoutReplacement(n)

    @property
    def size(self) -> int:
        """How many keys are drawn."""
        if self.n is None:
            raise BadInput(
                "WithoutReplacement needs n, how many keys each query draws: "
                "al.WithoutReplacement(n)."
            )
        return self.n

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Alike for every visible key."""
        visible = scores > -torch.inf
        chance = (self.size / visible.sum(-1, keepdim=True).to(scores.dtype)).clamp_max(1.0)
        return chance.expand(scores.shape) * visible

    def keep(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chances as they are: something is always drawn."""
        return self.probabilities(scores, queries)

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Zero for the keys drawn."""
        visible = scores > -torch.inf
        ranks = torch.rand(
            scores.shape, generator=generator, device=scores.device, dtype=torch.double
        ).masked_fill_(~visible, 2.0)
        size = min(self.size, scores.shape[-1])
        edge = ranks.kthvalue(size, dim=-1, keepdim=True).values
        return torch.zeros_like(scores).masked_fill_((ranks > edge) | ~visible, -torch.inf)
