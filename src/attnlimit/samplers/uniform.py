"""Uniform samples of a given number of keys, and fixed keys with a uniform sample of the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Draws, Sampler


@dataclass(frozen=True)
class UniformSampler(Sampler):
    """`n` of the visible keys; without n it still needs a size."""

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None:
            checks.count(self.n, "n", smallest=1)

    def with_size(self, n: float) -> UniformSampler:
        return replace(self, n=checks.count(n, "n", smallest=1))

    @property
    def size(self) -> int:
        """Number of keys drawn."""
        if self.n is None:
            name = type(self).__name__
            raise BadInput(f"{name} needs n, the number of keys of each query: al.{name}(n).")
        return self.n

    def selection_bytes(self, key: int, number: float) -> float:
        return 0.0

    def inclusion_probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Probabilities as they are: some key is always drawn."""
        return self.probabilities(scores, queries)


@dataclass(frozen=True)
class Iid(UniformSampler):
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
        """Logarithm of the number of times that each key was drawn."""
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


@dataclass(frozen=True)
class WithoutReplacement(UniformSampler):
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
