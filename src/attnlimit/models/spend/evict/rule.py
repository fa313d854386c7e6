"""Which keys does a cache keep? One base for every rule, so that all are compared alike.

A rule says how much each key matters from what the cache knows when it is cut. Everything else
follows: how many are kept, which ones, and what is added to their scores from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.spend.evict.chances import chances
from attnlimit.models.spend.evict.watched import Queries, Watched


class Eviction(ABC):
    """Keeps the keys that matter most. A new rule overrides `importance` alone.

    `keep` is the share of all tokens so far whose keys stay; a cache is cut after the first pass
    and whenever it has grown by `again` tokens, or never again if that is None.
    """

    keep: float
    again: int | None = None
    sinks: int = 0
    recent: int = 0
    last: int = 0
    """How many of the last queries the rule looks at."""
    earlier: int | None = 0
    """How many of those before, evenly spaced; all of them if None."""
    weighted: bool = False
    """Whether a kept key stands for those dropped: minus the logarithm of its chance is added."""
    common: bool = False
    """Whether importance is compared across heads, or every head keeps as many."""

    @property
    def name(self) -> str:
        """A few words for tables and pages."""
        return f"{type(self).__name__} {100 * self.keep:g} %"

    @abstractmethod
    def importance(self, watched: Watched) -> Tensor:
        """How much each key matters, (H_kv, m), not negative; any number where a slot is empty."""

    def size(self, length: int) -> int:
        """Keys kept of `length`, for each head on average."""
        return max(1, int(self.keep * length))

    def chances(self, importance: Tensor, here: Tensor, places: Tensor, length: int) -> Tensor:
        """Chance of each key of a sequence to be kept; of the first and last it is one.

        Parameters
        ----------
        importance : (layers, H_kv, m) tensor
        here : (layers, H_kv, m) tensor of bool
            Which slots hold a key.
        places : (layers, H_kv, m) tensor of int
            Position of each key.
        length : int
            Tokens of the sequence so far.
        """
        sure = here & ((places < self.sinks) | (places >= length - self.recent))
        weights = importance.double().masked_fill(~here, 0.0)
        sizes = torch.full(weights.shape[:2], self.size(length))
        if not self.weighted:
            return _heaviest(weights.masked_fill(~here, -1.0).masked_fill(sure, torch.inf), sizes)
        floor = 1e-9 * weights.mean(-1, keepdim=True)  # a key that nobody wants may still be drawn
        weights = weights.maximum(floor.clamp_min(1e-30)).masked_fill(~here, 0.0)
        if self.common:
            together = chances(weights.reshape(1, -1), sizes.sum()[None], sure.reshape(1, -1))
            sizes = _whole(together.reshape(weights.shape).sum(-1))
        return chances(weights, sizes, sure)

    def thinned(self, queries: Queries, length: int) -> Queries:
        """Return the queries to be remembered: the last, and earlier ones evenly spaced."""
        recent = queries.places >= length - self.last
        old = torch.nonzero(~recent & (queries.places >= self.sinks)).ravel()
        if self.earlier is not None and len(old) > self.earlier:
            places = queries.places[old].double()
            wanted = torch.linspace(float(places[0]), float(places[-1]), max(1, self.earlier))
            near = torch.searchsorted(places, wanted.double()).clamp_max(len(old) - 1).unique()
            old = old[near[: self.earlier]]
        return queries.pick(torch.cat([old, torch.nonzero(recent).ravel()]))


def check_sizes(rule: Eviction) -> None:
    """Refuse shares and numbers that no rule can have."""
    share = checks.real_number(rule.keep, "keep")
    if not 0 < share <= 1:
        raise BadInput(
            f"keep is the share of keys that stay, above 0 and at most 1, got {share:g}."
        )
    if rule.again is not None:
        checks.count(rule.again, "again")
    checks.count(rule.sinks, "sinks", smallest=0)
    checks.count(rule.recent, "recent", smallest=0)


def _heaviest(weights: Tensor, sizes: Tensor) -> Tensor:
    """Chance one for the heaviest keys of each head, zero for the others."""
    rank = torch.argsort(torch.argsort(weights, dim=-1, descending=True, stable=True), dim=-1)
    return ((rank < sizes[..., None]) & (weights >= 0)).double()


def _whole(sizes: Tensor) -> Tensor:
    """Round sizes to whole numbers, so that their sum stays; the largest remainders go up."""
    down = sizes.floor()
    missing = int((sizes.sum() - down.sum()).round())
    up = torch.argsort((sizes - down).reshape(-1), descending=True, stable=True)[:missing]
    return down.reshape(-1).index_add(0, up, torch.ones(len(up), dtype=down.dtype)).view_as(
        sizes
    ).long()  # fmt: skip
