"""Keys projected to fewer dimensions: those along which the keys that are there vary the most."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.samplers.proxies.base import Proxy


@dataclass(frozen=True)
class Rank(Proxy):
    """Keys by their `rank` first principal components."""

    rank: int

    def __post_init__(self) -> None:
        checks.count(self.rank, "rank", smallest=1)

    @property
    def name(self) -> str:
        return f"keys of rank {self.rank}"

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        around = (key - key.mean(-2, keepdim=True)).float()  # the mean moves all products alike
        axes = torch.linalg.eigh(around.transpose(-1, -2) @ around).eigenvectors
        axes = axes[..., -min(self.rank, key.shape[-1]) :]
        found = (query.float() @ axes) @ (around @ axes).transpose(-1, -2)
        return found.to(query.dtype)

    def bytes(self, width: int, number: float) -> float:
        return min(self.rank, width) * number
