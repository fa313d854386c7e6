"""Keys drawn with replacement: the tokens of a sequence resampled, as theory has them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.samplers.drawn import Drawn


@dataclass(frozen=True)
class Iid(Drawn):
    """`n` visible keys drawn independently, with replacement; a key drawn twice counts twice."""

    draws = "with replacement"

    @property
    def name(self) -> str:
        return "i.i.d." if self.n is None else f"{self.n} i.i.d."

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        visible = scores > -torch.inf
        chance = 1.0 / visible.sum(-1, keepdim=True).to(scores.dtype)
        return (-torch.expm1(self.size * torch.log1p(-chance))).expand(scores.shape) * visible

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Logarithm of how often each key was drawn."""
        visible = scores > -torch.inf
        counts = visible.sum(-1, keepdim=True)
        uniform = torch.rand(
            *scores.shape[:-1], self.size, generator=generator, device=scores.device,
            dtype=torch.double,
        )  # fmt: skip
        picks = torch.minimum((uniform * counts).long(), counts - 1)
        if not visible.all():
            order = torch.argsort(visible.byte(), dim=-1, descending=True, stable=True)
            picks = order.gather(-1, picks)
        drawn = torch.zeros_like(scores).scatter_add_(
            -1, picks, torch.ones(picks.shape, dtype=scores.dtype, device=scores.device)
        )
        return torch.log(drawn)
