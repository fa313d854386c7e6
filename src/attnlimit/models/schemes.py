"""Which keys does a query keep? Samplers made into keep-probabilities over a head's scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.montecarlo.samplers import Keep, SinksAndRecent, TopK, Window
from attnlimit.montecarlo.sinks_and_window import SinksAndWindow

Chooser = Callable[[Tensor, Tensor], Tensor]
"""Maps scores (..., R, N) and the queries' places (R,) to the keys kept for sure, boolean."""


@dataclass(frozen=True)
class Scheme:
    """Keys kept for sure, and an equal chance for each of the other visible keys.

    `sample` is the expected number of other keys; each is kept independently, which is what makes
    the law of `attnlimit.theory.schemes` exact. `weighted` divides its weight by its chance.
    """

    name: str
    chooser: Chooser
    sample: float
    weighted: bool

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chance of each key to be kept, of the shape of `scores`; zero where it is not visible."""
        visible = scores > -torch.inf
        kept = self.chooser(scores, queries) & visible
        rest = visible & ~kept
        chance = (self.sample / rest.sum(-1, keepdim=True).clamp_min(1)).clamp_max(1.0)
        return torch.where(kept, 1.0, chance * rest)


def scheme_of(sampler: Any) -> Scheme:
    """Turn a sampler that keeps keys into a scheme; the sampler's own sizes rule."""
    if isinstance(sampler, TopK):
        return Scheme(f"top {sampler.k}", top_keys(sampler.k), 0.0, False)
    if isinstance(sampler, SinksAndRecent):
        name = f"{sampler.sinks} sinks + {sampler.recent} recent"
        return Scheme(name, sinks_and_recent(sampler.sinks, sampler.recent), 0.0, False)
    if isinstance(sampler, SinksAndWindow):
        name = f"{sampler.sinks} sinks + window {sampler.width}"
        return Scheme(name, sinks_and_window(sampler.sinks, sampler.width), 0.0, False)
    if isinstance(sampler, Window):
        name = f"window {sampler.width} + {sampler.random} random"
        return Scheme(name, window(sampler.width), float(sampler.random), False)
    if isinstance(sampler, Keep):
        inner = scheme_of(sampler.kept) if sampler.kept is not None else EVERYTHING_SAMPLED
        if inner.sample:
            raise BadInput("Keep takes keys that are kept for sure: TopK or SinksAndRecent.")
        how = "weighted" if sampler.weighted else "plain"
        name = f"{inner.name} + {sampler.sample} {how}"
        return Scheme(name, inner.chooser, float(sampler.sample), bool(sampler.weighted))
    raise BadInput(
        f"{sampler!r} is not a sampler that keeps keys; use Window, SinksAndRecent, TopK or Keep."
    )


def top_keys(k: int) -> Chooser:
    """The k best keys of each query."""

    def choose(scores: Tensor, queries: Tensor) -> Tensor:
        size = min(k, scores.shape[-1])
        best = scores.topk(size, dim=-1).indices
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)

    return choose


def sinks_and_recent(sinks: int, recent: int) -> Chooser:
    """The first keys and the last ones up to the query."""

    def choose(scores: Tensor, queries: Tensor) -> Tensor:
        place = torch.arange(scores.shape[-1])
        distance = queries[:, None] - place
        return ((place < sinks) | ((distance >= 0) & (distance < recent))).expand(scores.shape)

    return choose


def sinks_and_window(sinks: int, width: int) -> Chooser:
    """The first keys and, of the others, the `width` around the query."""

    def choose(scores: Tensor, queries: Tensor) -> Tensor:
        last = max(sinks, scores.shape[-1] - width)
        start = (queries - width // 2).clamp(sinks, last)[:, None]
        place = torch.arange(scores.shape[-1])
        return ((place < sinks) | ((place >= start) & (place < start + width))).expand(scores.shape)

    return choose


def window(width: int) -> Chooser:
    """The `width` keys around the query."""

    def choose(scores: Tensor, queries: Tensor) -> Tensor:
        size = scores.shape[-1]
        start = (queries - width // 2).clamp(0, max(0, size - width))[:, None]
        place = torch.arange(size)
        return ((place >= start) & (place < start + width)).expand(scores.shape)

    return choose


EVERYTHING_SAMPLED = Scheme("nothing", lambda scores, queries: scores > torch.inf, 0.0, False)
