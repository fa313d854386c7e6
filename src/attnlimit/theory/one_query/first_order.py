"""First-order law of attention over sampled keys.

A query's softmax weights are P_j, its values v_j and its output Gamma. If key j is kept with
probability p_j and its weight divided by p_j, the output moves along a direction g with variance

    sum_j (1/p_j - 1) P_j^2 <g, v_j - Gamma>^2                                     (eq. 1)

to first order in the noise of the softmax's sums (docs/theory/output.md). `key_variances` is that
summand, and everything in the package that uses the law calls it: predictions of a model's output,
eviction scores, the running estimate of sampled attention, and extrapolation to longer contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.samplers import Sampler
from attnlimit.samplers.two_level import PAGE


def key_variances(weights: Tensor, odds: Tensor | float, squares: Tensor | float) -> Tensor:
    """Summands of eq. 1, one for each key.

    Parameters
    ----------
    weights : (..., N) tensor
        Softmax weights P_j.
    odds : tensor or float
        1/p_j - 1 of a key kept with probability p_j. With 1 - p_j in its place, and the weights
        that were used over kept keys, the sum estimates the variance from the kept keys alone.
    squares : tensor or float
        <g, v_j - Gamma>^2, or |v_j - Gamma|^2 for the squared error of the whole output.
    """
    return odds * weights.square() * squares


def squared_distances(values: Tensor, outputs: Tensor) -> Tensor:
    """|v_j - Gamma_q|^2 of values (..., N, d) around outputs (..., R, d): (..., R, N)."""
    size = values.square().sum(-1)[..., None, :]
    cross = outputs @ values.transpose(-1, -2)
    return (size - 2 * cross + outputs.square().sum(-1, keepdim=True)).clamp_min(0.0)


@dataclass(frozen=True, eq=False)
class WeightLaw:
    """First-order law of the weights that a sampler gives; leading dimensions as the scores'."""

    centre: Tensor  # (..., R, N) weights if every key came as often as expected
    mean: Tensor  # (..., R, N) expected weights; ratios add a second-order term
    spread: Tensor  # (..., R, N) variance of each key's noise
    noise: Tensor  # (..., R) relative variance of the denominator, which must be small
    inclusion: Tensor  # (..., R, N) probability that a key is kept

    @property
    def keys(self) -> Tensor:
        """Expected number of keys read, (..., R)."""
        return self.inclusion.sum(-1)

    def variance(self, along: Tensor) -> Tensor:
        """Variance of the output along g, from `along` (..., R, N) = <g, v_j - Gamma>."""
        shift = (self.centre * along).sum(-1, keepdim=True)
        return (self.spread * (along - shift).square()).sum(-1)

    def bias(self, along: Tensor) -> Tensor:
        """Mean error of the output along g."""
        return (self.mean * along).sum(-1)


def weight_law(sampler: Sampler, scores: Tensor, weights: Tensor, queries: Tensor) -> WeightLaw:
    """First-order law of a sampler's weights.

    Parameters
    ----------
    scores : (..., R, N) tensor
        -inf where a key is not visible.
    weights : (..., R, N) tensor
        Their softmax.
    queries : (R,) tensor of int
        Place of each query among the keys.
    """
    inclusion = sampler.inclusion_probabilities(scores, queries)
    if sampler.draws == "pages":
        return _paged_law(sampler, weights, inclusion, queries)
    if sampler.draws == "values":
        nothing = torch.zeros_like(weights)
        return ValueLaw(weights, weights, nothing, nothing[..., 0], inclusion, sampler)
    size: Any = getattr(sampler, "size", None)
    visible = (scores > -torch.inf).sum(-1, keepdim=True).to(scores.dtype)
    centre, fixed = weights, sampler.draws in ("with replacement", "without replacement")
    if not fixed:
        mass = weights * (inclusion > 0) if sampler.weighted else weights * inclusion
        centre = mass / mass.sum(-1, keepdim=True)
        odds = torch.where(inclusion > 0, (1 - inclusion) / inclusion.clamp_min(1e-30), 0.0)
    elif size is None:
        raise BadInput(
            f"{sampler!r} draws {sampler.draws} without a size, so its effect on the output cannot "
            "be predicted; measure it with evaluate."
        )
    elif sampler.draws == "with replacement":
        odds = visible / size
    else:
        odds = (visible / size - 1).clamp_min(0) * visible / (visible - 1).clamp_min(1)
    single = key_variances(centre, odds, 1.0)
    noise = single.sum(-1)
    if fixed:
        noise = noise - (odds / visible)[..., 0]  # the number of keys is the same in every draw
    if sampler.draws == "with replacement":
        spread = single
    else:
        # With the others as expected, key j moves the output by a (v_j - Gamma_0) e / (1 + a e),
        # e = 1/p - 1 if it is kept and -1 if not: mean and variance of these two values, and
        # the noise of the other keys in the denominator adds E 1/D^2 = 1 + 3 noise.
        both = (1 - centre) * (1 + odds * centre)
        single = torch.where(centre < 1, single / both, 0.0)
        spread = torch.where(centre < 1, single / both * (1 + 3 * noise[..., None]), 0.0)
    mean = centre - single + single.sum(-1, keepdim=True) * centre
    return WeightLaw(centre, mean, spread, noise, inclusion)


STARTS = 64
"""Starts that the variance of systematic sampling is averaged over, evenly spaced."""


def value_variance(weights: Tensor, along: Tensor, size: int, systematic: bool) -> Tensor:
    """Variance of the mean of `size` value rows drawn by their weights, (..., R).

    `along` (..., R, N) are the numbers to average. With one row from each stratum [(s-1)/S, s/S) of
    the cumulated weights the mean of a has the variance
    (1/S) sum_j P_j a_j^2 - (1/S^2) sum_s (mean of a over stratum s)^2.
    """
    ends = weights.double().cumsum(-1)
    ends = (ends / ends[..., -1:]).clamp_max(1.0)
    shares = torch.diff(ends, prepend=torch.zeros_like(ends[..., :1]))
    numbers = along.double()
    mean = (shares * numbers).sum(-1)

    def row(points: Tensor) -> Tensor:
        wanted = points.expand(*ends.shape[:-1], -1).contiguous()
        rows = torch.searchsorted(ends, wanted, right=True).clamp_max(ends.shape[-1] - 1)
        return rows.expand(*numbers.shape[:-1], -1)

    grid = torch.arange(size, dtype=torch.double)
    if systematic:
        total = torch.zeros_like(mean)
        for start in range(STARTS):
            drawn = numbers.gather(-1, row((grid + (start + 0.5) / STARTS) / size))
            total += (drawn.mean(-1) - mean).square()
        return (total / STARTS).to(along.dtype)
    # The integral of a(u) up to the edge of each stratum.
    edges = torch.arange(1, size, dtype=torch.double) / size
    at = row(edges)
    before = (shares * numbers).cumsum(-1) - shares * numbers
    starts = (ends - shares).expand(numbers.shape).gather(-1, at)
    inner = before.gather(-1, at) + (edges - starts) * numbers.gather(-1, at)
    whole = torch.cat([torch.zeros_like(mean)[..., None], inner, mean[..., None]], -1)
    square = (shares * numbers.square()).sum(-1)
    variance = square / size - torch.diff(whole, dim=-1).square().sum(-1)
    return variance.clamp_min(0.0).to(along.dtype)


@dataclass(frozen=True, eq=False)
class ValueLaw(WeightLaw):
    """Law of value rows drawn by their weights: unbiased, its variance without approximation."""

    sampler: Any

    def variance(self, along: Tensor) -> Tensor:
        return value_variance(self.centre, along, self.sampler.size, self.sampler.systematic)


@dataclass(frozen=True, eq=False)
class PagedLaw(WeightLaw):
    """Law of keys that are drawn in pages, which are drawn themselves.

    To the variance of keys within their pages it adds that of whole pages,
    sum_B (1/pi_B - 1) (sum_{j in B} P_j <g, v_j - Gamma>)^2.
    """

    page_weights: Tensor  # (..., R, N) weights of keys that come with their page, zero for others
    page_odds: Tensor  # (..., R, P) 1/pi_B - 1

    def _by_page(self, values: Tensor) -> Tensor:
        """Sums over the keys of each page, (..., R, P)."""
        pages = self.page_odds.shape[-1]
        padded = torch.nn.functional.pad(values, (0, PAGE * pages - values.shape[-1]))
        return padded.unflatten(-1, (pages, PAGE)).sum(-1)

    def variance(self, along: Tensor) -> Tensor:
        pages = self.page_odds * self._by_page(self.page_weights * along).square()
        return super().variance(along) + pages.sum(-1) * (1 + 3 * self.noise)

    def bias(self, along: Tensor) -> Tensor:
        whole = self._by_page(self.page_weights)
        pages = self.page_odds * whole * self._by_page(self.page_weights * along)
        return super().bias(along) - pages.sum(-1)


def _paged_law(sampler: Any, weights: Tensor, inclusion: Tensor, queries: Tensor) -> PagedLaw:
    """First-order law of a sampler that draws pages first."""
    chance, apart = sampler.page_probabilities(queries)
    shares = chance.repeat_interleave(PAGE, dim=-1)[..., : weights.shape[-1]]
    shares = shares.masked_fill(apart[:, None], 1.0).maximum(inclusion)
    odds = torch.where(
        inclusion > 0, 1 / inclusion.clamp_min(1e-30) - 1 / shares.clamp_min(1e-30), 0.0
    )
    page_weights, page_odds = weights.masked_fill(apart[:, None], 0.0), 1 / chance - 1
    law = PagedLaw(
        weights, weights, key_variances(weights, odds, 1.0), torch.zeros(()), inclusion,
        page_weights, page_odds,
    )  # fmt: skip
    single = law.spread
    noise = single.sum(-1) + (page_odds * law._by_page(page_weights).square()).sum(-1)
    mean = weights - single + single.sum(-1, keepdim=True) * weights
    spread = single * (1 + 3 * noise[..., None])
    return replace(law, mean=mean, spread=spread, noise=noise)


@dataclass(frozen=True, eq=False)
class ThresholdSums:
    """First-order sums over queries for every threshold c and head."""

    variance: Tensor  # (C, K, H)
    bias: Tensor  # (C, K, H)
    keys: Tensor  # (C, H)


def threshold_sums(weights: Tensor, along: Tensor, c: Tensor) -> ThresholdSums:
    """Variance and bias of eq. 1 for many thresholds at once, and keys read, summed over queries.

    A key of weight P below 1/c is kept with probability c P, so its term is (P/c - P^2) <g, .>^2,
    and keys above 1/c have none: the sums over keys below 1/c are cumulated over bins of P. The
    best key of a query is always kept.

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
    visible = (rest > 0).double().sum((1, 2))
    sampled = below((rest > 0).to(rest.dtype))
    keys = rows + visible - sampled + share * below(rest)
    variance, bias = [], []
    for gradient in along:
        first = rest * gradient
        second = rest.square() * gradient
        bias.append(below(second) - below(first) / share)
        variance.append(below(first * gradient) / share - below(second * gradient))
    return ThresholdSums(torch.stack(variance, 1), torch.stack(bias, 1), keys)


class IndependentBound:
    """Least first-order variance of any independent sampling with a given number of keys.

    It is reached at p_j = min(1, c w_j) with w_j = P_j sqrt(E_g <g, v_j - Gamma>^2) and one c for
    the whole model (docs/theory/threshold.md). Gradients are not known when keys are chosen, so
    this is a bound, not a sampler. The same probes choose and judge, so it is slightly too low.
    """

    STEPS = 16  # bins for each factor e of w
    LOWEST, HIGHEST = -60.0, 20.0

    def __init__(self) -> None:
        self.bins = int((self.HIGHEST - self.LOWEST) * self.STEPS)
        self.sums = np.zeros((3, self.bins))  # keys, w and w^2 by bins of w

    def add(self, weights: Tensor, along: Tensor) -> None:
        """Add the keys of a block: weights (H, R, N), along (K, H, R, N) = <g, v_j - Gamma>."""
        size = (weights * along.square().mean(0).sqrt()).reshape(-1)
        size = size[weights.reshape(-1) > 0]
        place = (torch.log(size).clamp_min(self.LOWEST) - self.LOWEST) * self.STEPS
        place = place.long().clamp_max(self.bins - 1)
        for row, values in enumerate((torch.ones_like(size), size, size.square())):
            self.sums[row] += torch.bincount(place, values, minlength=self.bins).double().numpy()

    def variance(self, keys: float) -> float:
        """Least variance, summed over queries and heads, if `keys` are read in all."""
        read, variance = self._curve()
        if keys >= read[-1]:
            return 0.0
        positive = variance > 0
        return float(np.exp(np.interp(keys, read[positive], np.log(variance[positive]))))

    def _curve(self) -> tuple[Array, Array]:
        """Keys read and variance at every threshold, from few keys to all."""
        count, first, second = (np.concatenate([[0.0], row.cumsum()]) for row in self.sums)
        level = np.exp(self.LOWEST + np.arange(self.bins + 1) / self.STEPS)  # 1/c
        read = count[-1] - count + first / level
        return read[::-1], np.maximum(level * first - second, 0.0)[::-1]
