"""Which queries of a captured head are asked, and what do they see?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.capture.captured import CapturedHead


@dataclass(frozen=True, eq=False)
class Queries:
    """Some queries of a captured head, with all they see."""

    head: CapturedHead
    rows: Tensor  # (R,) their places
    scores: Tensor  # (R, N) float64
    values: Tensor  # (N, d_v) float64
    weights: Tensor  # (R, N)
    output: Tensor  # (R, d_v)
    size: Array  # (R,) |Gamma|

    @classmethod
    def of(cls, head: CapturedHead, most: int) -> Queries:
        """At most `most` queries, evenly spread; the later half of a causal model's."""
        first = 0 if head.mask.full else len(head) // 2
        places = np.linspace(first, len(head) - 1, min(len(head) - first, most))
        rows = torch.from_numpy(np.unique(places.astype(np.int64)))
        scores, values = head.scores(rows).double(), head.v.double()
        weights = torch.softmax(scores, -1)
        output = weights @ values
        return cls(head, rows, scores, values, weights, output, output.norm(dim=1).numpy())

    def relative(self, error: Tensor) -> Array:
        """`error` (R, G) over the size of each query's output."""
        return (error / torch.from_numpy(self.size)[:, None].clamp_min(1e-300)).numpy()
