"""Deterministic keys and a uniform sample of the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Draws, Sampler


@dataclass(frozen=True)
class Keep(Sampler):
    """The keys of `kept`, and an independent sample of the rest, `sample` keys on average.

    `weighted` divides the weight of a sampled key by its probability, so that sums over the keys
    are unbiased. With `kept=None` every key but the best is sampled.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Keep(al.TopK(64), sample=192, weighted=True).name
    'top 64 + 192 weighted'
    """

    kept: Sampler | None = None
    sample: int = 192
    weighted: bool = True

    def __post_init__(self) -> None:
        checks.count(self.sample, "sample", smallest=0)
        if self.kept is None:
            return
        if not isinstance(self.kept, Sampler) or self.kept.draws != "nothing":
            raise BadInput(
                f"Keep needs a sampler that draws nothing, such as TopK(64) or SinksAndRecent(), "
                f"got {self.kept!r}."
            )

    @property
    def draws(self) -> Draws:
        return "independent" if self.sample else "nothing"

    @property
    def name(self) -> str:
        correction = "weighted" if self.weighted else "plain"
        kept = "best key" if self.kept is None else self.kept.name
        return f"{kept} + {self.sample} {correction}"

    def with_size(self, n: float) -> Keep:
        count = checks.count(n, "n", smallest=1)
        if self.kept is None:
            return Keep(None, count, self.weighted)
        kept = max(1, count // 2)
        return Keep(self.kept.with_size(kept), count - kept, self.weighted)

    def selection_bytes(self, key: int, number: float) -> float:
        return key * number if self.kept is None else self.kept.selection_bytes(key, number)

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        kept = (
            torch.zeros_like(scores, dtype=torch.bool)
            if self.kept is None
            else self.kept.inclusion_probabilities(scores, queries) == 1
        )
        return sampled_rest(scores, kept, self.sample)


def sampled_rest(scores: Tensor, kept: Tensor, sample: float) -> Tensor:
    """One for `kept` keys, an equal probability for the other visible ones, `sample` on average."""
    rest = (scores > -torch.inf) & ~kept
    chance = (sample / rest.sum(-1, keepdim=True).to(scores.dtype).clamp_min(1)).clamp_max(1.0)
    return torch.where(kept, 1.0, chance * rest)
