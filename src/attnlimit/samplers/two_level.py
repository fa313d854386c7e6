"""Sampling in two stages: pages of keys by their cumulants, then keys of the pages that came.

The limit of attention over the keys of a page is the gradient of their cumulant generating
function: a page of n keys whose scores have mean m and variance v has about the mass
n e^(m + v/2). Past v = 2 log n its largest key has all of it, e^(m + sqrt(2 v log n)). Pages that
are likely to matter are read; how many that is hardly grows with the context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import BoundSampler, ByKeys, Draws, Products, Sampler
from attnlimit.samplers.proxies import Index

PAGE = 64
OUTLIERS = 2
"""Keys of a page that are kept apart and always scored, because they are far from the others."""
ROUGH = 2.0
"""Squared distance of a further key from its page, over that of an average key, past which the page
is always read."""
RIDGE = 0.01
"""Share of the mean variance that is added to that of each axis of the page summaries."""
NEAR = 2
"""Last pages that are always read, one of them not full."""
FROZEN = math.sqrt(2 * math.log(PAGE))


@dataclass(frozen=True)
class TwoLevel(ByKeys):
    """Threshold sampling that scores the keys of some pages of 64 only.

    Page B is read with probability pi_B, proportional to its mass by mean and variance of its keys.
    Key j of a page that is read is kept so that its probability is min(pi_B, c P_j) in all, P_j its
    weight by 4-bit keys, and at least `floor` times an equal share. First and last pages, pages of
    several outlying keys and two such keys of every other page are always scored. Texts of few
    pages are read with one level.
    """

    c: float
    floor: float = 0.02
    page_floor: ClassVar[float] = 0.02
    """Least probability of a page, in short texts."""
    spare_pages: ClassVar[float] = 10.0
    """Pages that are read on average because of the least probability, at most."""

    weighted = True

    def __post_init__(self) -> None:
        checks.positive(self.c, "c")
        if not 0 <= checks.real_number(self.floor, "floor") <= 1:
            raise BadInput(f"floor must lie between 0 and 1, got {self.floor:g}.")

    @property
    def draws(self) -> Draws:
        return "pages"

    @property
    def name(self) -> str:
        return f"two levels {self.c:g}"

    @property
    def threshold(self) -> float:
        return self.c

    @property
    def levels(self) -> int:
        return 2

    def with_size(self, n: float) -> TwoLevel:
        return replace(self, c=checks.positive(n, "n"))

    def selection_bytes(self, key: int, number: float) -> float:
        # Summaries and far keys of every page; keys of pages that are read are candidates.
        return (4 * key + 4 + OUTLIERS * (key / 2 + 4)) / PAGE

    def candidate_bytes(self, key: int, number: float) -> float:
        return Index().bytes(key, number)

    def gather_bytes(self, key: int, value: int, number: float) -> float:
        return (key + value) * number

    def bind(self, products: Products) -> Sampler:
        weights = products.weights(Index())
        if PAGE_SCORES not in products.known:  # once for all thresholds
            products.known[PAGE_SCORES] = page_scores(products, products.known[Index()])
        pages = products.known[PAGE_SCORES]
        if products.heads is not None:
            pages = PageScores(*(part[products.heads] for part in pages))
        return BoundTwoLevel(self, pages, weights)


class PageScores(NamedTuple):
    """Masses of pages and the keys apart from them; leading dimensions are heads."""

    mass: Tensor  # (H, R, P) over the sum of all weights by codes; zero for pages after a query
    weight: Tensor  # (H, R, P) weights by codes of a page's keys, those apart left out
    apart: Tensor  # (H, N) keys that are scored without their page
    rough: Tensor  # (H, P) pages that are always read


PAGE_SCORES = "page scores"
"""Key of `Products.known` that holds them."""


def page_scores(products: Products, weights: Tensor) -> PageScores:
    """Masses of pages of 64 keys by the cumulants of their scores, for every query.

    `weights` (H, R, N) are those by 4-bit keys.
    """
    query, key = products.query, products.key
    heads, size = key.shape[:2]
    full, pages = size // PAGE, -(-size // PAGE)
    mass = query.new_zeros(heads, query.shape[1], pages)
    apart = torch.zeros(heads, size, dtype=torch.bool)
    rough = torch.zeros(heads, pages, dtype=torch.bool)
    if full > NEAR:
        mean = key.mean(1, keepdim=True)
        centred = (key - mean)[:, : full * PAGE]
        blocks = centred.unflatten(1, (full, PAGE))
        within = (blocks - blocks.mean(2, keepdim=True)).flatten(1, 2)
        spread, axes = torch.linalg.eigh(within.transpose(1, 2) @ within / within.shape[1])
        spread = spread.clamp_min(0) + RIDGE * spread.mean(1, keepdim=True) + 1e-30
        deviation = spread.sqrt()[:, None]
        turned = (centred @ (axes / deviation)).unflatten(1, (full, PAGE))
        near, centre, variance = _without_outliers(turned)
        furthest = ((turned - centre[:, :, None]).square().sum(-1) * near).amax(-1)
        rough[:, :full] = furthest > ROUGH * key.shape[-1]
        apart[:, : full * PAGE] = ~near.flatten(1, 2)
        apart[:, :PAGE] = False  # the first page is always read
        turned = query @ (axes * deviation)
        m, v = turned @ centre.transpose(1, 2), turned.square() @ variance.transpose(1, 2)
        smooth, frozen = v / 2 + math.log(PAGE - OUTLIERS), FROZEN * v.sqrt()
        log = m + torch.where(v < FROZEN**2, smooth, frozen) + query @ mean.transpose(1, 2)
        # Scores by codes, up to the logarithm of their sum, are those of `weights`.
        codes = products.scores(Index().products(query, key))
        total = codes.logsumexp(-1, keepdim=True)
        mass[..., :full] = torch.exp((log - total).clamp_max(80.0))
    member = torch.arange(size) // PAGE
    weight = torch.zeros_like(mass)
    weight.index_add_(2, member, weights.masked_fill(apart[:, None], 0.0))
    return PageScores(mass, weight, apart, rough)


@dataclass(frozen=True, eq=False)
class BoundTwoLevel(BoundSampler):
    """Two levels for given queries and keys; leading dimensions are heads."""

    pages: PageScores
    weights: Tensor  # (H, R, N) by 4-bit keys

    def page_probabilities(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of pages, (H, R, P), and which keys (H, N) are scored without them.

        Pages that are always read have probability 1, and so have those after the query.
        """
        mass, weight, apart, rough = self.pages
        last = queries.long() // PAGE + 1 - NEAR  # first page that is always read
        drawn = torch.arange(mass.shape[-1]) < last[:, None]
        drawn[:, 0] = False
        drawn = drawn & ~rough[..., None, :]
        relative = mass * drawn
        total = relative.sum(-1, keepdim=True) + 1 - (weight * drawn).sum(-1, keepdim=True)
        spare = self.rule.spare_pages * PAGE / (queries + 1).float()
        least = spare.clamp_max(self.rule.page_floor)[:, None]
        wanted = (self.rule.c * relative / total).maximum(least).clamp_max(1.0)
        short = queries + 1 < (NEAR + 2) * PAGE
        return torch.where(drawn & ~short[:, None], wanted, 1.0), apart

    def _shares(self, queries: Tensor) -> Tensor:
        """Probability that a key is scored, (H, R, N)."""
        chance, apart = self.page_probabilities(queries)
        shares = chance.repeat_interleave(PAGE, dim=-1)[..., : apart.shape[-1]]
        return shares.masked_fill(apart[:, None], 1.0)

    def candidates(self, scores: Tensor, queries: Tensor) -> Tensor:
        shares = self.page_probabilities(queries)[0]
        shares = shares.repeat_interleave(PAGE, dim=-1)[..., : scores.shape[-1]]
        return shares.masked_fill(scores == -torch.inf, 0.0)

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return self._within(self._shares(queries), scores)

    def _within(self, shares: Tensor, scores: Tensor) -> Tensor:
        visible = scores > -torch.inf
        least = self.rule.floor / visible.sum(-1, keepdim=True).to(scores.dtype)
        return (self.rule.c * torch.maximum(self.weights, least)).minimum(shares)

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Draw pages, and keys of those that came."""
        chance, apart = self.page_probabilities(queries)
        uniform = torch.rand(chance.shape, generator=generator, dtype=chance.dtype)
        came = (uniform < chance).repeat_interleave(PAGE, dim=-1)[..., : apart.shape[-1]]
        came = came | apart[:, None]
        inclusion = self.inclusion_probabilities(scores, queries)
        shares = self._shares(queries).maximum(inclusion)
        uniform = torch.rand(scores.shape, generator=generator, dtype=scores.dtype)
        kept = ((uniform * shares < inclusion) & came) | (inclusion == 1)
        return (-torch.log(inclusion)).masked_fill(~kept, -torch.inf)


def _without_outliers(turned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys that are near the mean of their page, (..., P, 64), with their mean and variance."""
    near = torch.ones(turned.shape[:-1], dtype=torch.bool)
    for number in range(OUTLIERS + 1):
        weight = near[..., None].to(turned.dtype)
        mean = (turned * weight).sum(-2, keepdim=True) / (PAGE - number)
        variance = ((turned - mean).square() * weight).sum(-2, keepdim=True) / (PAGE - number)
        if number < OUTLIERS:
            far = (turned - mean).square().sum(-1) * near
            near = near.scatter(-1, far.argmax(-1, keepdim=True), False)
    return near, mean[..., 0, :], variance[..., 0, :]
