"""Keys by the page (as in Quest): the best product that any key of a page can have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.samplers.proxies.base import Proxy


@dataclass(frozen=True)
class Pages(Proxy):
    """Pages of `size` keys, of which the smallest and largest number in each dimension are read.

    All keys of a page have the same product, the largest that a key within those numbers can have.
    """

    size: int = 16

    def __post_init__(self) -> None:
        checks.count(self.size, "size", smallest=1)

    @property
    def name(self) -> str:
        return f"pages of {self.size}"

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        pages = key.split(self.size, dim=-2)
        low, high = (
            torch.stack([getattr(page, end)(-2) for page in pages], -2) for end in ("amin", "amax")
        )
        best = query.clamp_min(0) @ high.transpose(-1, -2)
        best = best + query.clamp_max(0) @ low.transpose(-1, -2)
        return best.repeat_interleave(self.size, dim=-1)[..., : key.shape[-2]]

    def bytes(self, width: int, number: float) -> float:
        return 2 * width * number / self.size
