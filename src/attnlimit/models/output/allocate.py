"""Which size should each head have? The cheapest ones that keep the output's predicted error.

Heads, layers or the whole model are units that each take one of the same sizes. The cheapest
choice for a total error is that of a Lagrangian, cost + multiplier * error, unit by unit: it walks
the lower convex hulls of all units at one slope, found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.models.output.heads import HeadErrors

PER = ("model", "layer", "head")
Choice = NDArray[np.int64]  # (L, H) index of a size


@dataclass(frozen=True, eq=False)
class Sized:
    """One text's errors at a fine grid of sizes, the last of which is dense attention."""

    variance: Array  # (S, L, H, K)
    bias: Array  # (S, L, H, K)
    keys: Array  # (S, L, H) read by a query, on average
    scale: float
    cost: Array  # (S, L, H) of what is made small
    bias_factor: float = 1.0  # what one pass says of the squared bias over what the probes say

    def by_probe(self, choice: Choice) -> Array:
        """Predicted error at a choice of sizes, by each probe (K,)."""
        layer, head = np.indices(choice.shape)
        variance = self.variance[choice, layer, head].sum((0, 1))
        bias = self.bias[choice, layer, head].sum((0, 1))
        return np.asarray(self.scale * (variance + self.bias_factor * bias**2))

    def shares(self) -> Array:
        """What each head adds to the error if all have one size, (S, L, H)."""
        whole = self.bias.sum((1, 2), keepdims=True)
        shared = (self.bias * whole).mean(-1) * self.bias_factor
        return np.asarray(self.scale * (self.variance.mean(-1) + np.maximum(shared, 0.0)))

    def at(self, values: Array, choice: Choice) -> Array:
        """Values (S, L, H) at a choice of sizes, (L, H)."""
        layer, head = np.indices(choice.shape)
        return np.asarray(values[choice, layer, head])

    def mean_keys(self, choice: Choice) -> float:
        """Keys read by a query of a head at a choice of sizes."""
        return float(self.at(self.keys, choice).mean())


def interpolated(found: HeadErrors, sizes: Array, wanted: Array) -> Sized:
    """Errors at the `wanted` sizes from those at a coarse grid, and dense attention after them."""
    place = np.interp(np.log(wanted), np.log(sizes), np.arange(len(sizes)))
    low = np.minimum(place.astype(np.int64), max(0, len(sizes) - 2))
    high = np.minimum(low + 1, len(sizes) - 1)
    part = (place - low)[:, None, None]

    def straight(values: Array, weight: Array) -> Array:
        return np.asarray((1 - weight) * values[low] + weight * values[high])

    # Variances fall like powers of the size.
    tiny = 1e-300
    logs = np.log(found.variance + tiny)
    variance = np.exp(straight(logs, part[..., None]))
    tokens, shape = found.probed.tokens, found.keys.shape[1:]

    def with_dense(values: Array, whole: float) -> Array:
        """What a query has at each size, and at last what dense attention has."""
        dense = np.full((1, *shape), whole / found.keys[0].size)
        return np.concatenate([straight(values, part), dense]) / tokens

    keys = with_dense(found.keys, found.visible)
    cost = keys if found.moved is None else with_dense(found.moved, found.dense_bytes)
    nothing = np.zeros((1, *variance.shape[1:]))
    return Sized(
        np.concatenate([np.where(variance <= 10 * tiny, 0.0, variance), nothing]),
        np.concatenate([straight(found.bias, part[..., None]), nothing]),
        keys,
        found.probed.scale,
        cost,
    )


def allocate(
    texts: Sequence[Sized], together: int, enough: Callable[[Choice], bool], steps: int = 60
) -> Choice:
    """Cheapest sizes, one for every `together` heads of a layer, at which `enough` says yes."""
    error = _units(np.mean([text.shares() for text in texts], axis=0), together)  # (S, U)
    cost = _units(np.mean([text.cost for text in texts], axis=0), together)
    shape = texts[0].keys.shape[1:]

    def chosen(log_multiplier: float) -> Choice:
        index = np.argmin(cost + np.exp(log_multiplier) * error, axis=0)
        return np.repeat(index, together).reshape(shape)

    low, high = -10.0, 60.0
    best = chosen(high)
    if not enough(best):
        return np.full(shape, len(cost) - 1)
    for _ in range(steps):
        middle = (low + high) / 2
        choice = chosen(middle)
        if enough(choice):
            best, high = choice, middle
        else:
            low = middle
    return best


def cheapest_common(texts: Sequence[Sized], enough: Callable[[Choice], bool]) -> Choice:
    """Return the smallest size for all heads alike at which `enough` says yes."""
    sizes, layers, heads = texts[0].keys.shape
    low, high = -1, sizes - 1  # dense attention is always enough
    while high - low > 1:
        middle = (low + high) // 2
        if enough(np.full((layers, heads), middle)):
            high = middle
        else:
            low = middle
    return np.full((layers, heads), high)


def _units(values: Array, together: int) -> Array:
    """Sums over the heads of each unit, (S, units)."""
    return np.asarray(values.reshape(len(values), -1, together).sum(-1))
