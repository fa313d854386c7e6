"""Every key of weight at least 1/c, and a weighted sample of the rest: threshold sampling.

Among all samplers that keep keys independently and divide weights by chances, p = min(1, c P) has
the fewest keys for a given variance of the output when values are not known. Where the weights P
come from something smaller than the keys, a proxy, only the keys that are kept need be read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler
from attnlimit.samplers.products import Products
from attnlimit.samplers.proxies import Proxy, check_proxy


@dataclass(frozen=True)
class Threshold(Sampler):
    """Key j kept with chance min(1, c P_j), its weight divided by that: at most about c keys.

    A peaked query reads few keys, a diffuse one up to `c`. With a `proxy`, such as "4bit", "rank16"
    or "page16", P_j is the weight that the proxy gives, but at least `floor` times that of an equal
    share: a key that the proxy thinks little of must not count too much when it comes.
    """

    c: float
    proxy: Proxy | str | None = None
    floor: float = 0.02

    weighted = True

    def __post_init__(self) -> None:
        checks.positive(self.c, "c")
        if not 0 <= checks.real_number(self.floor, "floor") <= 1:
            raise BadInput(f"floor must lie between 0 and 1, got {self.floor:g}.")
        if self.proxy is not None:
            object.__setattr__(self, "proxy", check_proxy(self.proxy))

    @property
    def name(self) -> str:
        by = "" if self.proxy is None else f" by {check_proxy(self.proxy).name}"
        return f"threshold {self.c:g}{by}"

    @property
    def asks_keys(self) -> bool:
        return self.proxy is not None

    def sized(self, n: int) -> Threshold:
        return replace(self, c=checks.count(n, "n", smallest=1))

    def looked(self, key: int, number: float) -> float:
        if self.proxy is None:
            return super().looked(key, number)
        return check_proxy(self.proxy).bytes(key, number)

    def fetched(self, key: int, value: int, number: float) -> float:
        return (value if self.proxy is None else key + value) * number

    def seeing(self, products: Products) -> Sampler:
        if self.proxy is None:
            return self
        return _ByProxy(self, products.weights(check_proxy(self.proxy)))

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        if self.proxy is not None:
            raise BadInput(
                f"{self.name} chooses by what stands in for the keys, and there are only scores "
                "here; give it queries and keys first (sampler.seeing), or leave out the proxy."
            )
        return (self.c * torch.softmax(scores, -1)).clamp_max(1.0)


@dataclass(frozen=True, eq=False)
class _ByProxy(Sampler):
    """A threshold whose weights are those that a proxy gave."""

    asked: Threshold
    weights: Tensor  # (..., R, N)

    weighted = True

    @property
    def name(self) -> str:
        return self.asked.name

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chances by the proxy; its best key, not the best of all, is certain if no other is."""
        visible = scores > -torch.inf
        least = self.asked.floor / visible.sum(-1, keepdim=True).to(scores.dtype)
        weights = self.weights.expand(scores.shape)
        chance = (self.asked.c * torch.maximum(weights, least)).clamp_max(1.0)
        best = weights.argmax(-1, keepdim=True)
        unsure = ~((chance == 1) & visible).any(-1, keepdim=True)
        return chance.scatter(-1, best, torch.where(unsure, 1.0, chance.gather(-1, best)))
