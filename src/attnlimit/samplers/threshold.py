"""Threshold sampling of keys: every key of weight at least 1/c, and a weighted sample of the rest.

Among all samplers that keep keys independently and divide weights by probabilities, p = min(1, c P)
has the fewest keys for a given variance of the output when values are not known. Where the weights
P come from a proxy, something smaller than the keys, only the kept keys have to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import BoundSampler, Products, Sampler
from attnlimit.samplers.proxies import Proxy, check_proxy, parse_proxy


@dataclass(frozen=True)
class Threshold(Sampler):
    """Key j kept with probability min(1, c P_j), its weight divided by that: at most about c keys.

    A peaked query reads few keys, a diffuse one up to `c`. With a `proxy`, such as "4bit" or
    "page16", P_j is the weight by the proxy, but at least `floor` times an equal share: this
    bounds the correction of a key whose weight the proxy underestimates.

    Examples
    --------
    >>> import torch, attnlimit as al
    >>> scores = torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    >>> al.Threshold(2).probabilities(scores, torch.tensor([2]))  # min(1, 2 times the weight)
    tensor([[1.0000, 0.6000, 0.2000]])
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
    def threshold(self) -> float:
        return self.c

    @property
    def levels(self) -> int:
        return 1

    @property
    def needs_keys(self) -> bool:
        return self.proxy is not None

    def with_size(self, n: float) -> Threshold:
        return replace(self, c=checks.positive(n, "n"))

    def selection_bytes(self, key: int, number: float) -> float:
        if self.proxy is None:
            return super().selection_bytes(key, number)
        return check_proxy(self.proxy).bytes(key, number)

    def gather_bytes(self, key: int, value: int, number: float) -> float:
        return (value if self.proxy is None else key + value) * number

    def bind(self, products: Products) -> Sampler:
        if self.proxy is None:
            return self
        return _ByProxy(self, products.weights(check_proxy(self.proxy)))

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        if self.proxy is not None:
            raise BadInput(
                f"{self.name} needs queries and keys, and there are only scores here; call "
                "sampler.bind(products) first, or leave out the proxy."
            )
        return (self.c * torch.softmax(scores, -1)).clamp_max(1.0)

    def arguments(self) -> str:
        """Arguments as text: "48.0", "48.0:4bit" or "48.0:4bit:0.2" with a floor."""
        text = repr(self.c)
        if self.proxy is None:
            return text
        text += f":{check_proxy(self.proxy).spec}"
        return text if self.floor == Threshold.floor else f"{text}:{self.floor!r}"

    @classmethod
    def from_arguments(cls, text: str) -> Threshold:
        """Read what `arguments` writes."""
        parts = text.split(":")
        proxy = parse_proxy(parts[1]) if len(parts) > 1 else None
        try:
            if len(parts) > 3:
                raise ValueError
            return cls(float(parts[0]), proxy, *map(float, parts[2:]))
        except ValueError as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"threshold takes c, proxy and floor, got {text!r}.") from None


@dataclass(frozen=True, eq=False)
class _ByProxy(BoundSampler):
    """A threshold whose weights are those of a proxy."""

    weights: Tensor  # (..., R, N)

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Probabilities by the proxy; its own best key gets one, if no other has it."""
        visible = scores > -torch.inf
        least = self.rule.floor / visible.sum(-1, keepdim=True).to(scores.dtype)
        weights = self.weights.expand(scores.shape)
        chance = (self.rule.c * torch.maximum(weights, least)).clamp_max(1.0)
        best = weights.argmax(-1, keepdim=True)
        unsure = ~((chance == 1) & visible).any(-1, keepdim=True)
        return chance.scatter(-1, best, torch.where(unsure, 1.0, chance.gather(-1, best)))
