"""Samplers by score: the k best keys, or the fewest that hold a share of the weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler


@dataclass(frozen=True)
class TopK(Sampler):
    """The `k` keys of the highest score.

    Examples
    --------
    >>> import torch, attnlimit as al
    >>> al.TopK(2).probabilities(torch.tensor([[0.3, 2.0, 1.0]]), torch.tensor([2]))
    tensor([[False,  True,  True]])
    """

    k: int

    draws = "nothing"

    def __post_init__(self) -> None:
        checks.count(self.k, "k", smallest=1)

    @property
    def name(self) -> str:
        return f"top {self.k}"

    def with_size(self, n: float) -> TopK:
        return TopK(checks.count(n, "n", smallest=1))

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        best = scores.topk(min(self.k, scores.shape[-1]), dim=-1).indices
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)


@dataclass(frozen=True)
class TopP(Sampler):
    """The fewest keys that together hold at least `share` of the attention weight.

    Twilight (Lin et al., arXiv:2502.02770).

    Examples
    --------
    >>> import torch, attnlimit as al
    >>> scores = torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    >>> al.TopP(0.8).probabilities(scores, torch.tensor([2]))
    tensor([[ True,  True, False]])
    """

    share: float

    draws = "nothing"

    def __post_init__(self) -> None:
        if not 0 < checks.real_number(self.share, "share") <= 1:
            raise BadInput(f"share must lie in (0, 1], got {self.share:g}.")

    @property
    def name(self) -> str:
        return f"top {self.share:.4g} of the weight"

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        weights, order = torch.sort(torch.softmax(scores, -1), dim=-1, descending=True)
        before = torch.cumsum(weights, -1) - weights
        needed = before < self.share
        return torch.zeros_like(needed).scatter_(-1, order, needed)
