"""Keys in few bits: every few numbers of a key have a smallest one and a step of their own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers.proxies.base import Proxy

GROUP = 32
"""Numbers of a key that share a smallest value and a step, each of two bytes."""


@dataclass(frozen=True)
class Bits(Proxy):
    """Keys whose numbers are rounded to `bits` bits."""

    bits: int = 4

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or self.bits not in range(1, 9):
            raise BadInput(f"bits must be a whole number from 1 to 8, got {self.bits!r}.")

    @property
    def name(self) -> str:
        return f"{self.bits}-bit keys"

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        rounded = [self._rounded(part) for part in key.split(GROUP, dim=-1)]
        return query @ torch.cat(rounded, -1).transpose(-1, -2)

    def _rounded(self, numbers: Tensor) -> Tensor:
        low, high = numbers.aminmax(dim=-1, keepdim=True)
        step = ((high - low) / (2**self.bits - 1)).clamp_min(torch.finfo(numbers.dtype).tiny)
        return low + step * torch.round((numbers - low) / step)

    def bytes(self, width: int, number: float) -> float:
        return width * self.bits / 8 + 4 * -(-width // GROUP)
