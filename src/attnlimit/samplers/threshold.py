"""Every key of weight at least 1/c, and a weighted sample of the rest: threshold sampling.

Among all samplers that keep keys independently and divide weights by chances, p = min(1, c P) has
the fewest keys for a given variance of the output when values are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.samplers.base import Sampler


@dataclass(frozen=True)
class Threshold(Sampler):
    """Key j kept with chance min(1, c P_j), its weight divided by that: at most about c keys.

    A peaked query reads few keys, a diffuse one up to `c`.
    """

    c: float

    weighted = True

    def __post_init__(self) -> None:
        checks.positive(self.c, "c")

    @property
    def name(self) -> str:
        return f"threshold {self.c:g}"

    def sized(self, n: int) -> Threshold:
        return Threshold(checks.count(n, "n", smallest=1))

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return (self.c * torch.softmax(scores, -1)).clamp_max(1.0)
