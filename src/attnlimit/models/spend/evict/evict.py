"""Which keys can be dropped, and what do the others make up for? Weighted eviction.

A key is kept with chance p = min(1, c w) and -log p stays with it, so that the softmax's sums stay
unbiased. w_j^2 is the mean of P_j^2 |v_j - Gamma|^2 over the queries to come, whose law is that of
queries watched so far, moved to positions to come. How far that law can be trusted the cache finds
out by itself: how well did earlier queries foretell the last ones (docs/theory/eviction.md)?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.spend.evict.rule import Eviction, check_sizes
from attnlimit.models.spend.evict.watched import Queries, Watched

TRUST = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
"""How much of a key's squared weight may be that of the average key of its head."""

FEWEST = 8
"""Queries and keys on each side that a head needs to learn its trust from."""


Sizes: TypeAlias = Literal["common", "equal"] | Array | tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Evict(Eviction):
    """Drop keys by a weighted draw; those kept stand for all.

    Parameters
    ----------
    keep : float
        Share of all tokens so far whose keys stay, in (0, 1].
    observe : int
        Queries that stand for those to come: the last ones, and as many earlier ones.
    again : int, optional
        Cut whenever the cache has grown by so many tokens; None cuts after the prompt only.
    ahead : int
        Positions to come that queries are moved to.
    sinks, recent : int
        First and last keys that always stay.
    sizes : "common", "equal" or array (layers, KV heads)
        How many keys each head keeps: by one c for the whole model, as many as every other, or by
        one c with each head's squared errors multiplied by these numbers, such as
        `al.models.output_weights(model, text)`, so that the output errs least.
    """

    keep: float = 0.25
    observe: int = 64
    again: int | None = 256
    ahead: int = 256
    sinks: int = 4
    recent: int = 16
    sizes: Sizes = "common"

    weighted = True

    def __post_init__(self) -> None:
        check_sizes(self)
        checks.count(self.observe, "observe")
        checks.count(self.ahead, "ahead")
        if isinstance(self.sizes, str):
            checks.one_of(self.sizes, ("common", "equal"), "sizes")
        else:
            object.__setattr__(self, "sizes", _by_head(self.sizes))

    @property
    def name(self) -> str:
        by = "" if isinstance(self.sizes, str) else " by output"
        return f"weighted {100 * self.keep:g} %{by}"

    @property
    def last(self) -> int:  # type: ignore[override]
        """As many of the last queries as were asked for."""
        return self.observe

    @property
    def earlier(self) -> int:  # type: ignore[override]
        """As many earlier ones."""
        return self.observe

    @property
    def common(self) -> bool:  # type: ignore[override]
        """Whether one c serves all heads."""
        return self.sizes != "equal"

    def chances(self, importance: Tensor, here: Tensor, places: Tensor, length: int) -> Tensor:
        if not isinstance(self.sizes, str):
            weights = torch.tensor(self.sizes, dtype=torch.double, device=importance.device)
            if weights.shape != importance.shape[:2]:
                raise BadInput(
                    f"sizes are of {weights.shape[0]} layers of {weights.shape[1]} KV heads, the "
                    f"model has {importance.shape[0]} of {importance.shape[1]}."
                )
            importance = importance.double() * weights.sqrt()[..., None]
        return super().chances(importance, here, places, length)

    def importance(self, watched: Watched) -> Tensor:
        late = watched.queries.places >= watched.length - self.observe
        parts = [watched.queries.pick(torch.nonzero(one).ravel()) for one in (~late, late)]
        laws = [
            watched.squared_errors(watched.moved(part, watched.length, self.ahead))
            for part in parts
            if len(part)
        ]
        return _shrunk(torch.stack(laws).mean(0), watched.here, _trust(watched, *parts)).sqrt()


def _by_head(sizes: object) -> tuple[tuple[float, ...], ...]:
    weights = np.asarray(sizes, dtype=float)
    if weights.ndim != 2 or not (np.isfinite(weights) & (weights > 0)).all():
        raise BadInput(
            'sizes are "common", "equal" or positive numbers by layer and KV head, got '
            f"an array of shape {weights.shape}."
        )
    return tuple(map(tuple, weights.tolist()))


def _shrunk(squared: Tensor, here: Tensor, share: Tensor) -> Tensor:
    """Mix squared weights with their mean over the keys of the head."""
    squared = squared.masked_fill(~here, 0.0)
    mean = squared.sum(-1, keepdim=True) / here.sum(-1, keepdim=True).clamp_min(1)
    return (1 - share[:, None]) * squared + share[:, None] * mean


def _trust(watched: Watched, earlier: Queries, last: Queries) -> Tensor:
    """Share of the mean that would have served the last queries best, had earlier ones been asked.

    Chances p = c w with a given sum leave the variance (sum w)(sum W / w) to queries of squared
    weights W, whatever the sum: the share that makes this least, for each head.
    """
    start = watched.length - len(last)
    old = watched.here & (watched.positions < start) & (watched.positions >= 0)
    shares = torch.tensor(TRUST, dtype=torch.double)
    if min(len(earlier), len(last)) < FEWEST or int(old.sum(-1).min()) < FEWEST:
        return shares[len(shares) // 2].expand(len(old))
    before = watched.without(~old)
    foretold = before.squared_errors(before.moved(earlier, start, len(last))).double()
    came = watched.squared_errors(last, causal=True).double().masked_fill(~old, 0.0)
    costs = []
    for share in shares:
        weight = _shrunk(foretold, old, share.expand(len(old))).sqrt().masked_fill(~old, 0.0)
        costs.append(weight.sum(-1) * (came / weight.masked_fill(~old, 1.0)).sum(-1))
    return shares[torch.stack(costs).argmin(0)]
