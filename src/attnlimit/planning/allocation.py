"""Allocation of sampler sizes to heads, layers or a whole model.

Units each take one of the same sizes. The cheapest choice for a total error minimises the
Lagrangian cost + multiplier * error unit by unit: it walks the lower convex hulls of all units at
one slope, which is bisected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.constants import NINE_OF_TEN, PRIOR_TEXTS, TEXT_SPREAD
from attnlimit.planning.calibration import TextTerms
from attnlimit.samplers import Sampler, Threshold, TwoLevel
from attnlimit.samplers.base import check_sampler
from attnlimit.samplers.spec import parse_sampler

UNITS = ("model", "layer", "head")
SIZES = 25
FEWER_SIZES = 11
"""Sizes of samplers that look at keys, which take longer."""
FINER = 20
BISECTIONS = 60
SMALLEST_THRESHOLD, LARGEST_THRESHOLD = 10.0, 10240.0
FAMILIES: dict[str, Sampler] = {
    "threshold": Threshold(1.0),
    "index": Threshold(1.0, proxy="index"),
    "two-level": TwoLevel(1.0),
}
"""Families that have a name of their own."""
Choice = NDArray[np.int64]  # (L, H) index of a size


@dataclass(frozen=True)
class SamplerGrid:
    """Sizes of one family of samplers: coarse ones that are tabulated, fine ones to choose from."""

    family: Sampler
    coarse: tuple[float, ...]
    fine: tuple[float, ...]

    @classmethod
    def of(cls, scheme: str | Sampler, tokens: int) -> SamplerGrid:
        """Return the grid of a family, which any of its members stands for."""
        if isinstance(scheme, str):
            family = FAMILIES[scheme] if scheme in FAMILIES else parse_sampler(scheme)
        else:
            family = check_sampler(scheme)
        if family.threshold is not None:
            ends = SMALLEST_THRESHOLD, LARGEST_THRESHOLD
            number = FEWER_SIZES if family.needs_keys else SIZES
            coarse = np.geomspace(*ends, number)
            fine = np.geomspace(*ends, FINER * (SIZES - 1) + 1)
            return cls(family, tuple(coarse.tolist()), tuple(float(f"{c:.4g}") for c in fine))
        family.with_size(2)  # refuses a sampler that cannot be resized
        few, many = (
            tuple(np.unique(np.geomspace(2, tokens, number).round()).tolist())
            for number in (SIZES, FINER * SIZES)
        )
        return cls(family, few, many)

    def sampler(self, size: float) -> Sampler:
        """Return the family's sampler of a size: c of a threshold, the keys of any other."""
        return self.family.with_size(size)

    def samplers(self, sizes: Sequence[float]) -> list[Sampler]:
        """Return the family's samplers of several sizes."""
        return [self.sampler(size) for size in sizes]


@dataclass(frozen=True, eq=False)
class SizeErrors:
    """One text's errors at a fine grid of sizes, the last of which is dense attention."""

    variance: Array  # (S, L, H, K)
    bias: Array  # (S, L, H, K)
    keys: Array  # (S, L, H) read by a query, on average
    scale: float
    bias_factor: float = 1.0  # squared bias of one pass over that of the probes
    added: Array | float = 0.0  # error of another change along the probes, such as an eviction

    def by_probe(self, choice: Choice) -> Array:
        """Predicted error at a choice of sizes, by each probe (K,)."""
        layer, head = np.indices(choice.shape)
        variance = self.variance[choice, layer, head].sum((0, 1))
        bias = self.bias[choice, layer, head].sum((0, 1))
        return np.asarray(self.scale * (variance + self.bias_factor * bias**2) + self.added)

    def common(self) -> Array:
        """Predicted error along each probe if all heads have one size, (S, K)."""
        bias = self.bias.sum((1, 2))
        variance = self.variance.sum((1, 2))
        return np.asarray(self.scale * (variance + self.bias_factor * bias**2))

    def shares(self) -> Array:
        """Contribution of each head to the error if all have one size, (S, L, H)."""
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

    def with_bias(self, choice: Choice, exact: float) -> SizeErrors:
        """Scale the squared bias of the probes to `exact`, that of one pass at this choice."""
        layer, head = np.indices(choice.shape)
        whole = self.bias[choice, layer, head].sum((0, 1))
        probed = self.scale * float((whole**2).mean())
        return replace(self, bias_factor=exact / probed if probed > 0 else self.bias_factor)


def interpolate(text: TextTerms, grid: SamplerGrid) -> SizeErrors:
    """Errors at the fine sizes from those at the coarse ones, and dense attention after them."""
    sums, sizes = text.sums, np.array(grid.coarse)
    place = np.interp(np.log(grid.fine), np.log(sizes), np.arange(len(sizes)))
    low = np.minimum(place.astype(np.int64), max(0, len(sizes) - 2))
    high = np.minimum(low + 1, len(sizes) - 1)
    part = (place - low)[:, None, None]

    def linear(values: Array, weight: Array) -> Array:
        return np.asarray((1 - weight) * values[low] + weight * values[high])

    # Variances fall like powers of the size.
    tiny = 1e-300
    variance = np.exp(linear(np.log(sums.variance + tiny), part[..., None]))
    dense = np.full((1, *sums.keys.shape[1:]), sums.visible / sums.keys[0].size)
    zeros = np.zeros((1, *variance.shape[1:]))
    return SizeErrors(
        np.concatenate([np.where(variance <= 10 * tiny, 0.0, variance), zeros]),
        np.concatenate([linear(sums.bias, part[..., None]), zeros]),
        np.concatenate([linear(sums.keys, part), dense]) / sums.queries,
        text.run.scale,
    )


def next_factor(values: Array) -> Array:
    """Factor over the mean that nine of ten next texts stay below, if logarithms are normal.

    Texts are the first dimension of `values`.
    """
    count = len(values)
    spread = np.log(np.maximum(values, 1e-300)).var(0, ddof=1) if count > 1 else 0.0
    variance = ((count - 1) * spread + PRIOR_TEXTS * TEXT_SPREAD**2) / (count - 1 + PRIOR_TEXTS)
    return np.asarray(np.exp(NINE_OF_TEN * np.sqrt(variance * (1 + 1 / count))))


def constrained(values: Array, margin: float | None) -> Array:
    """Error that is held below the target, from those of the texts, the first dimension."""
    if margin is not None:
        return np.asarray(values.mean(0) * margin)
    return np.asarray(values.mean(0) * (next_factor(values) if len(values) > 1 else 1.0))


def allocate(
    texts: Sequence[SizeErrors], together: int, allowed: Callable[[Choice], bool]
) -> Choice:
    """Cheapest allowed sizes, one for every `together` heads of a layer."""
    error = _units(np.mean([text.shares() for text in texts], axis=0), together)  # (S, U)
    keys = _units(np.mean([text.keys for text in texts], axis=0), together)
    shape = texts[0].keys.shape[1:]

    def chosen(log_multiplier: float) -> Choice:
        index = np.argmin(keys + np.exp(log_multiplier) * error, axis=0)
        return np.repeat(index, together).reshape(shape)

    low, high = -10.0, 60.0
    best = chosen(high)
    if not allowed(best):
        return np.full(shape, len(keys) - 1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        choice = chosen(middle)
        if allowed(choice):
            best, high = choice, middle
        else:
            low = middle
    return best


def cheapest_common(texts: Sequence[SizeErrors], allowed: Callable[[Choice], bool]) -> Choice:
    """Return the smallest size for all heads alike that is allowed; dense attention always is."""
    sizes, *shape = texts[0].keys.shape
    place = bisect_left(range(sizes - 1), True, key=lambda index: allowed(np.full(shape, index)))
    return np.full(shape, place)


def _units(values: Array, together: int) -> Array:
    """Sums over the heads of each unit, (S, units)."""
    return np.asarray(values.reshape(len(values), -1, together).sum(-1))
