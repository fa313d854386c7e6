"""Which keys does a query see? Places and two numbers that answer for blocks, never a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array

BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class Mask:
    """Visibility among the N captured tokens: data, so that it can be stored and sent.

    A query at place i sees the key at place j if j <= i where `causal`, and |i - j| < `window`
    where there is one. Padding is a gap in `positions`: padded tokens are not among the N.

    `np.asarray(mask)` makes the whole N x N array, for small N; everything here works on blocks.
    """

    positions: Tensor  # (N,) place of each token in the model's input
    causal: bool = False
    window: int | None = None

    @property
    def full(self) -> bool:
        """Whether every query sees every key."""
        return not self.causal and self.window is None

    @property
    def fused(self) -> bool:
        """Whether there are fused kernels for it: all keys, or all up to the query's own."""
        return self.window is None

    def __len__(self) -> int:
        return len(self.positions)

    def visible(self, rows: slice | Tensor, columns: slice | Tensor = slice(None)) -> Tensor:
        """Boolean block: which `columns` (keys) the queries `rows` see."""
        return sees(self.positions[rows], self.positions[columns], self.causal, self.window)

    def counts(self) -> Tensor:
        """How many keys each query sees."""
        size = len(self)
        if self.full:
            return torch.full((size,), size)
        if self.causal and self.fused:
            return torch.arange(1, size + 1)
        step = max(1, BLOCK // size)
        return torch.cat([self.visible(slice(i, i + step)).sum(1) for i in range(0, size, step)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.visible(slice(None)).numpy(), dtype=dtype)

    def __repr__(self) -> str:
        kind = "full" if self.full else "causal" if self.causal else "two-sided"
        width = "" if self.window is None else f", window={self.window}"
        return f"Mask({kind}{width}, tokens={len(self)})"


def sees(queries: Tensor, keys: Tensor, causal: bool, window: int | None) -> Tensor:
    """Boolean block (queries, keys) of places: which keys are seen."""
    ahead = keys[None, :] - queries[:, None]
    seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    return seen if window is None else seen & (ahead.abs() < window)
