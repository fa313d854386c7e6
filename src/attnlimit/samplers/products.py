"""What does a sampler look at that needs more than scores? The queries and keys they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attnlimit.samplers.proxies.base import Proxy


@dataclass(frozen=True, eq=False)
class Products:
    """Queries and keys whose scores a sampler is asked about; leading dimensions as the scores'."""

    query: Tensor  # (..., R, d), times the scale of scores
    key: Tensor  # (..., N, d)
    scores: Callable[[Tensor], Tensor]  # of products: cap, places; -inf where not visible
    heads: list[int] | None = None  # of the first dimension; None for all
    known: dict[Proxy, Tensor] = field(default_factory=dict)

    def exact(self) -> Tensor:
        """Scores (..., R, N) by the keys themselves."""
        return self.scores(self.query @ self.key.transpose(-1, -2))

    def weights(self, proxy: Proxy) -> Tensor:
        """Attention weights by a proxy of the keys, (..., R, N); worked out once for all heads."""
        if proxy not in self.known:
            about = self.scores(proxy.products(self.query, self.key))
            self.known[proxy] = torch.softmax(about, -1)
        return self.known[proxy] if self.heads is None else self.known[proxy][self.heads]

    def of(self, heads: list[int]) -> Products:
        """Those of some heads."""
        return replace(self, heads=heads)
