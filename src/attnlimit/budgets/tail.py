"""How wrong are best keys with a weighted sample of the rest? To first order, at every size."""

from __future__ import annotations

import numpy as np
import torch

from attnlimit.budgets.seen import Queries
from attnlimit.checks import Array


class Tail:
    """What is left of each query's second moment without its best keys."""

    def __init__(self, queries: Queries) -> None:
        weights, order = torch.sort(queries.weights, dim=1, descending=True)
        distance = torch.cdist(
            queries.output, queries.values, compute_mode="donot_use_mm_for_euclid_dist"
        )
        part = (weights * distance.gather(1, order)).square()
        left = torch.cat([part, torch.zeros(len(part), 1)], 1).flip(1).cumsum(1).flip(1)
        self.left = (left / torch.from_numpy(queries.size).clamp_min(1e-300)[:, None] ** 2).numpy()
        self.visible = (queries.scores > -torch.inf).sum(1).numpy()

    def error(self, n: int, factor: int = 1) -> Array:
        """Relative root mean square error (R,) with n tokens of `factor` copies of the keys."""
        best = max(1, n // 2)
        place = min(best / factor, self.left.shape[1] - 1)
        low = int(place)
        high = min(low + 1, self.left.shape[1] - 1)
        left = self.left[:, low] + (place - low) * (self.left[:, high] - self.left[:, low])
        rest = np.maximum(factor * self.visible - best, 0)
        odds = np.maximum(rest / max(n - best, 1) - 1, 0)
        return np.asarray(np.sqrt(odds / factor * left))
