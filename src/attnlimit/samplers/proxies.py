"""Proxies of keys: smaller representations from which scores are approximated.

Probabilities from a proxy are divided out like any others and kept keys have their true scores, so
a poor proxy costs keys and variance, never bias.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput

GROUP = 32
"""Numbers of a key that share a smallest value and a step, each of two bytes."""


class Proxy(ABC):
    """Approximates the products of queries and keys. A new proxy says how, and what it reads."""

    @property
    def name(self) -> str:
        """Short description for tables and pages."""
        return repr(self)

    @property
    def spec(self) -> str:
        """Text that `parse_proxy` reads as this proxy."""
        raise BadInput(f"{self!r} is not one of the package's proxies, so it cannot be written.")

    @abstractmethod
    def products(self, query: Tensor, key: Tensor) -> Tensor:
        """Approximate <q, k>, (..., R, N), for queries (..., R, d) and keys (..., N, d).

        A number added to all products of one query changes nothing.
        """

    @abstractmethod
    def bytes(self, width: int, number: float) -> float:
        """Bytes that are read for each visible key of `width` numbers of `number` bytes."""


@dataclass(frozen=True)
class Bits(Proxy):
    """Keys rounded to `bits` bits, with a smallest value and a step for every 32 numbers."""

    bits: int = 4

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or self.bits not in range(1, 9):
            raise BadInput(f"bits must be a whole number from 1 to 8, got {self.bits!r}.")

    @property
    def name(self) -> str:
        return f"{self.bits}-bit keys"

    @property
    def spec(self) -> str:
        return f"{self.bits}bit"

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        rounded = [self._rounded(part) for part in key.split(GROUP, dim=-1)]
        return query @ torch.cat(rounded, -1).transpose(-1, -2)

    def _rounded(self, numbers: Tensor) -> Tensor:
        low, high = numbers.aminmax(dim=-1, keepdim=True)
        step = ((high - low) / (2**self.bits - 1)).clamp_min(torch.finfo(numbers.dtype).tiny)
        return low + step * torch.round((numbers - low) / step)

    def bytes(self, width: int, number: float) -> float:
        return width * self.bits / 8 + 4 * -(-width // GROUP)


@dataclass(frozen=True)
class Index(Proxy):
    """The index of fast decoding: keys less their mean, in 4 bits, with one scale a key."""

    @property
    def name(self) -> str:
        return "4-bit index"

    @property
    def spec(self) -> str:
        return "index"

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        mean = key.mean(-2, keepdim=True)
        centred = key - mean
        unit = (centred.abs().amax(-1, keepdim=True) / (127.5 / 16)).clamp_min(1e-30)
        codes = torch.floor(centred / unit + 8).clamp(0, 15)
        return query @ ((codes - 7.5) * unit + mean).transpose(-1, -2)

    def bytes(self, width: int, number: float) -> float:
        return width / 2 + 4


@dataclass(frozen=True)
class Pages(Proxy):
    """Pages of `size` keys, by their smallest and largest number in each dimension.

    All keys of a page get the largest product that a key within those numbers can have. Quest
    (Tang et al., arXiv:2406.10774).
    """

    size: int = 16

    def __post_init__(self) -> None:
        checks.count(self.size, "size", smallest=1)

    @property
    def name(self) -> str:
        return f"pages of {self.size}"

    @property
    def spec(self) -> str:
        return f"page{self.size}"

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


_KINDS: dict[str, Callable[..., Proxy]] = {
    r"index": Index,
    r"(\d+)bit": Bits,
    r"page(\d+)": Pages,
}


def parse_proxy(text: str) -> Proxy:
    """Return the proxy of a text such as "4bit" or "page16"."""
    for pattern, kind in _KINDS.items():
        match = re.fullmatch(pattern, text.strip())
        if match is not None:
            return kind(*map(int, match.groups()))
    raise BadInput(
        f"There is no proxy {text!r} for keys; write index, 4bit, or page16 (the best score "
        "that a page of 16 keys can have)."
    )


def check_proxy(proxy: object) -> Proxy:
    """Return a proxy, given as one or as its text; refuse anything else."""
    if isinstance(proxy, str):
        return parse_proxy(proxy)
    if isinstance(proxy, Proxy):
        return proxy
    raise BadInput(f'{proxy!r} is not a proxy for keys; give one such as "4bit" or al.Bits(4).')
