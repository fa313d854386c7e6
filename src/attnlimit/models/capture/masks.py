"""Which keys does a query see? A rule that answers for blocks of queries, never a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array

Rule = Callable[[Tensor, Tensor], Tensor]
"""Maps query positions (r, 1) and key positions (1, c) to visibility, broadcastable to (r, c)."""


@dataclass(frozen=True, eq=False)
class Mask:
    """Visibility among the N captured tokens.

    `np.asarray(mask)` makes the whole N x N array, for small N; everything here works on blocks.
    """

    positions: Tensor  # (N,) place of each token in the model's input
    rule: Rule | None  # None: every query sees every key
    causal: bool  # plain causal attention, for which there are fused kernels

    @property
    def full(self) -> bool:
        """Whether every query sees every key."""
        return self.rule is None

    def __len__(self) -> int:
        return len(self.positions)

    def visible(self, rows: slice | Tensor, columns: slice | Tensor = slice(None)) -> Tensor:
        """Boolean block: which `columns` (keys) the queries `rows` see."""
        queries = self.positions[rows]
        keys = self.positions[columns]
        if self.rule is None:
            return torch.ones(len(queries), len(keys), dtype=torch.bool)
        return self.rule(queries[:, None], keys[None, :]).expand(len(queries), len(keys))

    def counts(self) -> Tensor:
        """How many keys each query sees."""
        size = len(self)
        if self.full:
            return torch.full((size,), size)
        if self.causal:
            return torch.arange(1, size + 1)
        step = max(1, (1 << 22) // size)
        return torch.cat([self.visible(slice(i, i + step)).sum(1) for i in range(0, size, step)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.visible(slice(None)).numpy(), dtype=dtype)

    def __repr__(self) -> str:
        kind = "full" if self.full else "causal" if self.causal else "rule"
        return f"Mask({kind}, tokens={len(self)})"
