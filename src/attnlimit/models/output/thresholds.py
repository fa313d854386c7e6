"""What do many thresholds do to an output at once? Sums over bins of weights, cumulated.

A key of weight P below 1/c is kept with chance c P, so its noise has variance P/c - P^2, and keys
above 1/c have none: for every c the sums wanted are sums over the keys below 1/c. The best key of
a query is always kept and never counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Thresholds:
    """First-order sums over queries for every threshold c and head."""

    variance: Tensor  # (C, K, H)
    bias: Tensor  # (C, K, H)
    keys: Tensor  # (C, H)


def threshold_sums(weights: Tensor, along: Tensor, c: Tensor) -> Thresholds:
    """Variance and bias along each of K gradients, and keys read, summed over the queries.

    Parameters
    ----------
    weights : (H, R, N) tensor
        Softmax weights, zero where a key is not visible.
    along : (K, H, R, N) tensor
        <g, v_j - Gamma> of every key.
    c : (C,) tensor
        Thresholds, increasing.
    """
    heads, rows, _ = weights.shape
    best = torch.argmax(weights, -1, keepdim=True)
    rest = weights.scatter(-1, best, 0.0)
    levels = (1.0 / c.double()).to(rest.dtype).flip(0)  # increasing weights
    bins = len(levels) + 1
    # A key in bin b lies below every level from b on: it is sampled at those thresholds.
    place = torch.bucketize(rest, levels, right=True)
    place += bins * torch.arange(heads)[:, None, None]
    flat = place.reshape(-1)

    def below(values: Tensor) -> Tensor:
        """Sums over keys below 1/c, (C, H), by the order of c."""
        sums = torch.bincount(flat, values.reshape(-1), minlength=heads * bins)
        return sums.reshape(heads, bins).cumsum(-1)[:, :-1].flip(1).T.double()

    share = c.double()[:, None]
    square = rest.square()
    shown = (rest > 0).double().sum((1, 2))
    sampled = below((rest > 0).to(rest.dtype))
    keys = rows + shown - sampled + share * below(rest)
    variance, bias = [], []
    for gradient in along:
        first = rest * gradient
        second = square * gradient
        bias.append(below(second) - below(first) / share)
        variance.append(below(first * gradient) / share - below(second * gradient))
    return Thresholds(torch.stack(variance, 1), torch.stack(bias, 1), keys)
