"""How little error could any way of keeping keys one by one have? The best use of every probe.

Of all ways to keep keys independently, with weights divided by chances, the least variance for a
number of keys is at chances min(1, c w) with w_j = P_j sqrt(E_g <g, v_j - Gamma>^2) and one c for
the whole model (docs/theory/threshold.md). Gradients are not known when keys are chosen, so this is
a yardstick, not a sampler. The same probes choose and judge, which makes it a little too good.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array

_STEPS = 16  # bins for each factor e of w
_LOWEST, _HIGHEST = -60.0, 20.0


class Yardstick:
    """Adds up keys by w, and gives the least variance for a number of keys."""

    def __init__(self) -> None:
        self.bins = int((_HIGHEST - _LOWEST) * _STEPS)
        self.sums = np.zeros((3, self.bins))  # keys, w and w^2 by bins of w

    def add(self, weights: Tensor, along: Tensor) -> None:
        """Add the keys of a block: weights (H, R, N), along (K, H, R, N) = <g, v_j - Gamma>."""
        size = (weights * along.square().mean(0).sqrt()).reshape(-1)
        size = size[weights.reshape(-1) > 0]
        place = (torch.log(size).clamp_min(_LOWEST) - _LOWEST) * _STEPS
        place = place.long().clamp_max(self.bins - 1)
        for row, values in enumerate((torch.ones_like(size), size, size.square())):
            self.sums[row] += torch.bincount(place, values, minlength=self.bins).double().numpy()

    def variance(self, keys: float) -> float:
        """Least variance, summed over queries and heads, when `keys` are read in all."""
        read, variance = self._curve()
        if keys >= read[-1]:
            return 0.0
        known = variance > 0
        return float(np.exp(np.interp(keys, read[known], np.log(variance[known]))))

    def _curve(self) -> tuple[Array, Array]:
        """Keys read and variance at every threshold, from few keys to all."""
        count, first, second = (np.concatenate([[0.0], row.cumsum()]) for row in self.sums)
        level = np.exp(_LOWEST + np.arange(self.bins + 1) / _STEPS)  # 1/c
        read = count[-1] - count + first / level
        return read[::-1], np.maximum(level * first - second, 0.0)[::-1]
