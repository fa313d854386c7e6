"""Published rules that choose keys for a query, written from their papers.

`selection_bytes`, `candidates` and `gather_bytes` count what each rule has to look at: bounds of
pages, codes of candidate keys, entries of hash tables, and keys and values that are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import BoundSampler, ByKeys, Draws, Products, Sampler, positions
from attnlimit.samplers.proxies import Bits, Pages, Proxy
from attnlimit.samplers.spec import register

CODES = Bits(4)
ID_BYTES = 4
"""Bytes of a key's number in a hash table."""


@dataclass(frozen=True, eq=False)
class Bound(BoundSampler):
    """A published rule for given queries and keys, by its probabilities."""

    chance: Tensor  # (..., R, N)
    looked: Tensor | None = None  # (..., R, N) probability that a key's index entry is read

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return self.chance.expand(scores.shape)

    def candidates(self, scores: Tensor, queries: Tensor) -> Tensor | None:
        return self.looked


def proxy_scores(products: Products, proxy: Proxy) -> Tensor:
    """Scores by a proxy, -inf where a key is not visible, of the products' heads."""
    if (place := ("scores", proxy)) not in products.known:
        approximate = proxy.products(products.query, products.key)
        products.known[place] = products.scores(approximate)
    scores: Tensor = products.known[place]
    return scores if products.heads is None else scores[products.heads]


def best_pages(bounds: Tensor, size: int, keys: Tensor | float) -> Tensor:
    """Keys of the pages with the largest bounds, `keys` of them or a few more.

    `bounds` (..., R, N) has the bound of its page for every visible key. The page of the query
    itself, the last one that it sees, is always taken.
    """
    count = bounds.shape[-1]
    padded = torch.nn.functional.pad(bounds, (0, -count % size), value=-torch.inf)
    pages = padded.unflatten(-1, (-1, size)).amax(-1)
    last = (pages > -torch.inf) * torch.arange(1, pages.shape[-1] + 1)
    pages = pages.scatter(-1, last.argmax(-1, keepdim=True), torch.inf)
    rank = pages.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    taken = (rank < torch.as_tensor(keys / size).ceil()) & (pages > -torch.inf)
    return taken.repeat_interleave(size, -1)[..., :count] & (bounds > -torch.inf)


def visible_count(scores: Tensor) -> Tensor:
    """Keys that each query sees, (..., R, 1)."""
    return (scores > -torch.inf).sum(-1, keepdim=True)


@register("quest")
@dataclass(frozen=True)
class Quest(ByKeys):
    """Keys of the pages whose bound of the score is largest (Tang et al., arXiv:2406.10774).

    A page of numbers between m and M has the bound sum_i max(q_i m_i, q_i M_i).
    """

    budget: int
    page: int = 16

    draws = "nothing"

    def __post_init__(self) -> None:
        checks.count(self.budget, "budget", smallest=1)
        checks.count(self.page, "page", smallest=1)

    @property
    def name(self) -> str:
        return f"Quest {self.budget}"

    def with_size(self, n: float) -> Quest:
        return Quest(checks.count(n, "n", smallest=1), self.page)

    def selection_bytes(self, key: int, number: float) -> float:
        return Pages(self.page).bytes(key, number)

    def bind(self, products: Products) -> Sampler:
        return Bound(
            self, best_pages(proxy_scores(products, Pages(self.page)), self.page, self.budget)
        )


@register("twilight")
@dataclass(frozen=True)
class Twilight(ByKeys):
    """The fewest candidates that hold a `share` of the weight by 4-bit keys (arXiv:2502.02770).

    Candidates are the keys of Quest's best pages, a share `candidates` of all (Lin et al., 2025).
    """

    share: float = 0.85
    candidate_share: float = 0.25
    page: int = 16

    draws = "nothing"

    def __post_init__(self) -> None:
        for name in ("share", "candidate_share"):
            if not 0 < checks.real_number(getattr(self, name), name) <= 1:
                raise BadInput(f"{name} must lie in (0, 1], got {getattr(self, name):g}.")
        checks.count(self.page, "page", smallest=1)

    @property
    def name(self) -> str:
        return f"Twilight {self.share:.4g}"

    def selection_bytes(self, key: int, number: float) -> float:
        return 0.0 if self.candidate_share == 1 else Pages(self.page).bytes(key, number)

    def candidate_bytes(self, key: int, number: float) -> float:
        return CODES.bytes(key, number)

    def bind(self, products: Products) -> Sampler:
        codes = proxy_scores(products, CODES)
        among = codes > -torch.inf
        if self.candidate_share < 1:
            bounds = proxy_scores(products, Pages(self.page))
            among = best_pages(bounds, self.page, self.candidate_share * visible_count(codes))
        weights, order = torch.softmax(codes.masked_fill(~among, -torch.inf), -1).sort(
            -1, descending=True
        )
        needed = weights.cumsum(-1) - weights < self.share
        chosen = torch.zeros_like(needed).scatter_(-1, order, needed) & among
        return Bound(self, chosen, among.to(codes.dtype))


@register("vattention")
@dataclass(frozen=True)
class VAttention(Sampler):
    """First, last and best keys, and as many others as (epsilon, delta) needs (arXiv:2510.05688).

    Of the n other keys, b = (Phi^-1(1 - delta/2) n s / (epsilon D))^2 are drawn, so that the
    denominator D of the softmax is within epsilon of itself with probability 1 - delta by a normal
    approximation; s is the standard deviation of their exp(score). A draw takes s and D from a
    first sample of a share `base`, and at least as many are kept. Predictions take them from all
    keys. The best keys, a share `top`, are those by 4-bit keys, in place of a trained index (Desai
    et al., 2025).
    """

    epsilon: float = 0.05
    delta: float = 0.05
    base: float = 0.05
    top: float = 0.05
    sinks: int = 128
    recent: int = 128

    weighted = True

    @property
    def draws(self) -> Draws:
        return "dependent"

    def __post_init__(self) -> None:
        for name, least in (("epsilon", 0), ("delta", 0), ("base", 0), ("top", -1)):
            value = checks.real_number(getattr(self, name), name)
            if not (least < value < 1 and value >= 0):
                raise BadInput(f"{name} must be a share below 1, got {value:g}.")
        for name in ("sinks", "recent"):
            checks.count(getattr(self, name), name, smallest=0)

    @property
    def name(self) -> str:
        return f"vAttention {self.epsilon:g}, {self.delta:g}"

    @property
    def needs_keys(self) -> bool:
        return self.top > 0

    def selection_bytes(self, key: int, number: float) -> float:
        return CODES.bytes(key, number) if self.top else 0.0

    def candidate_bytes(self, key: int, number: float) -> float:
        return key * number

    def candidates(self, scores: Tensor, queries: Tensor) -> Tensor:
        place = positions(scores)
        rest = (place >= self.sinks) & (place <= queries[:, None] - self.recent)
        return self.base * (rest & (scores > -torch.inf)).to(scores.dtype)

    def bind(self, products: Products) -> Sampler:
        if not self.top:
            return self
        return _TopVAttention(**self.__dict__, codes=proxy_scores(products, CODES))

    def _best(self, scores: Tensor) -> Tensor:
        """Scores by which the best keys are taken."""
        return scores

    def _chance(self, scores: Tensor, queries: Tensor, drawn: Tensor | None) -> Tensor:
        visible, place = scores > -torch.inf, positions(scores)
        sure = (place < self.sinks) | (place > queries[:, None] - self.recent)
        sure = sure & visible
        if self.top:
            other = self._best(scores).masked_fill(sure, -torch.inf)
            number = (self.top * visible_count(scores)).ceil()
            most = other.topk(min(int(number.max()), other.shape[-1]), -1).indices
            best = torch.arange(most.shape[-1]) < number
            sure = sure | (torch.zeros_like(sure).scatter(-1, most, best) & visible)
        rest = visible & ~sure
        count = rest.sum(-1, keepdim=True).to(scores.dtype)
        exps = torch.exp(scores - scores.amax(-1, keepdim=True))
        seen = (rest if drawn is None else rest & drawn).to(scores.dtype)
        number = seen.sum(-1, keepdim=True).clamp_min(1)
        mean = (exps * seen).sum(-1, keepdim=True) / number
        spread = ((exps - mean).square() * seen).sum(-1, keepdim=True) / (number - 1).clamp_min(1)
        total = (exps * sure).sum(-1, keepdim=True) + count * mean
        needed = NormalDist().inv_cdf(1 - self.delta / 2) * count * spread.sqrt()
        share = (needed / (self.epsilon * total)).square() / count.clamp_min(1)
        return torch.where(sure, 1.0, share.clamp(self.base, 1.0) * rest)

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return self._chance(scores, queries, None)

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a first sample, and with what it says the keys that are kept."""
        first, second = (
            torch.rand(scores.shape, generator=generator, dtype=scores.dtype) for _ in range(2)
        )
        chance = self._chance(scores, queries, first < self.base)
        best = scores == scores.amax(-1, keepdim=True)
        unsure = ~(chance == 1).any(-1, keepdim=True)
        chance = chance.masked_fill(best & unsure, 1.0)
        return (-torch.log(chance)).masked_fill(second >= chance, -torch.inf)


@dataclass(frozen=True, eq=False)
class _TopVAttention(VAttention):
    """vAttention for given queries and keys."""

    codes: Tensor | None = None

    def _best(self, scores: Tensor) -> Tensor:
        assert self.codes is not None
        return self.codes


@register("magicpig")
@dataclass(frozen=True)
class MagicPIG(ByKeys):
    """Keys that share the query's hash in at least two tables (Chen et al., arXiv:2410.16179).

    A table's hash has `bits` signs of random directions, of queries and centred keys. At an angle t
    a sign agrees with probability p = 1 - t/pi, so that a key comes with probability
    u = 1 - (1 - p^K)^L - L p^K (1 - p^K)^(L-1), by which its weight is divided. First and last keys
    always stay. Keys of similar directions come together; predictions take them as independent.
    """

    bits: int = 10
    tables: int = 150
    sinks: int = 4
    recent: int = 64

    weighted = True

    @property
    def draws(self) -> Draws:
        return "dependent"

    def __post_init__(self) -> None:
        for name, least in (("bits", 1), ("tables", 2), ("sinks", 0), ("recent", 0)):
            checks.count(getattr(self, name), name, smallest=least)

    @property
    def name(self) -> str:
        return f"MagicPIG {self.bits}, {self.tables}"

    def selection_bytes(self, key: int, number: float) -> float:
        return 0.0

    def candidate_bytes(self, key: int, number: float) -> float:
        return float(ID_BYTES * self.tables)

    def bind(self, products: Products) -> Sampler:
        return _Hashed(self, *_directions(products))


def _directions(products: Products) -> tuple[Tensor, Tensor]:
    """Unit vectors of queries and of centred keys."""
    query, key = products.query, products.key
    if products.heads is not None:
        query, key = query[products.heads], key[products.heads]
    unit = torch.nn.functional.normalize
    return unit(query, dim=-1), unit(key - key.mean(-2, keepdim=True), dim=-1)


@dataclass(frozen=True, eq=False)
class _Hashed(BoundSampler):
    """Hash tables of given keys."""

    query: Tensor  # (..., R, d) unit vectors
    key: Tensor  # (..., N, d)

    def _sure(self, scores: Tensor, queries: Tensor) -> Tensor:
        place = positions(scores)
        last = place > queries[:, None] - self.rule.recent
        return ((place < self.rule.sinks) | last).expand(scores.shape)

    def _agreement(self) -> Tensor:
        """Probability that a table's hash agrees, (..., R, N)."""
        cosine = (self.query @ self.key.transpose(-1, -2)).clamp(-1, 1)
        return (1 - torch.arccos(cosine) / math.pi) ** self.rule.bits

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        same, tables = self._agreement(), self.rule.tables
        twice = 1 - (1 - same) ** (tables - 1) * (1 + (tables - 1) * same)
        chance = twice.clamp(torch.finfo(scores.dtype).tiny, 1.0).expand(scores.shape)
        return chance.masked_fill(self._sure(scores, queries), 1.0)

    def candidates(self, scores: Tensor, queries: Tensor) -> Tensor:
        outside = self._sure(scores, queries) | (scores == -torch.inf)
        return self._agreement().expand(scores.shape).masked_fill(outside, 0.0)

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Hash queries and keys, and keep those that agree in two tables."""
        inclusion = self.inclusion_probabilities(scores, queries)
        bits, tables = self.rule.bits, self.rule.tables
        shape = (*scores.shape[:-2], self.key.shape[-1], bits)  # each head has tables of its own
        power = 2.0 ** torch.arange(bits, dtype=scores.dtype)
        number = torch.int16 if bits < 16 else torch.int64
        matches = torch.zeros(inclusion.shape, dtype=torch.int16)
        for _ in range(tables):
            planes = torch.randn(shape, generator=generator, dtype=scores.dtype)
            query, key = (
                ((part @ planes > 0).to(power) @ power).to(number)
                for part in (self.query, self.key)
            )
            matches += query[..., None] == key[..., None, :]
        kept = ((matches >= 2) & (inclusion > 0)) | (inclusion == 1)
        return (-torch.log(inclusion)).masked_fill(~kept, -torch.inf)


@register("santa")
@dataclass(frozen=True)
class Santa(Sampler):
    """All keys are read, and `size` value rows drawn by their weights (Lee et al., 2605.01910).

    The output is the mean of value rows i_1, ..., i_S, i_s with probability P_i from its stratum
    [(s-1)/S, s/S) of the cumulated weights: from one uniform number a stratum, or with `systematic`
    from one for all strata. It is unbiased, for the denominator is not sampled.
    """

    size: int
    systematic: bool = False

    weighted = True

    def __post_init__(self) -> None:
        checks.count(self.size, "size", smallest=1)

    @property
    def draws(self) -> Draws:
        return "values"

    @property
    def name(self) -> str:
        return f"SANTA {self.size}{' systematic' if self.systematic else ''}"

    def with_size(self, n: float) -> Santa:
        return Santa(checks.count(n, "n", smallest=1), self.systematic)

    def overlaps(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Probability that a value row is drawn, and the variance of how often."""
        ends = self.size * weights.double().cumsum(-1)
        starts = ends - self.size * weights.double()
        whole = (ends.floor() - starts.ceil()).clamp_min(0)
        length = ends - starts
        alone = ends.floor() == starts.floor()
        first = torch.where(alone | self.systematic, length, starts.ceil() - starts)
        last = torch.where(alone | self.systematic, 0.0, ends - ends.floor())
        if self.systematic:
            part = length - length.floor()
            return length.clamp(0, 1), part * (1 - part)
        first, last = first.clamp(0, 1), last.clamp(0, 1)
        drawn = torch.where(whole > 0, 1.0, 1 - (1 - first) * (1 - last))
        return drawn, first * (1 - first) + last * (1 - last)

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return self.overlaps(torch.softmax(scores, -1))[0].to(scores.dtype)

    def inclusion_probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Probabilities as they are: no key has to be certain, weights add up to one."""
        return self.probabilities(scores, queries).masked_fill(scores == -torch.inf, 0.0)

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Draw value rows; softmax(scores + added) is how often each came, over `size`."""
        ends = torch.softmax(scores.double(), -1).cumsum(-1)
        shape = (*scores.shape[:-1], 1 if self.systematic else self.size)
        uniform = torch.rand(shape, generator=generator, dtype=torch.double)
        points = (torch.arange(self.size) + uniform) / self.size * (1 - 1e-12)
        row = torch.searchsorted(ends, points * ends[..., -1:], right=True)
        counts = torch.zeros_like(ends).scatter_add_(-1, row, torch.ones_like(points))
        added = torch.log(counts / self.size) - torch.log_softmax(scores.double(), -1)
        return added.masked_fill(counts == 0, -torch.inf).to(scores)
