"""Probability that attention over sampled keys falls below a threshold.

The output of a scalar value over sampled keys is a ratio, but it is below t when a sum is negative:
sum_j c_j (v_j - t) < 0 over the keys drawn, with softmax weights c_j and values v_j. The
characteristic function of that sum is a power (drawn with replacement), a product (kept
independently) or a mean over subsets (without replacement), and the sign of a bounded sum is a
square wave, whose Fourier series gives the probability. Terms may differ by orders of magnitude, so
the series is summed level by level of the largest term drawn (docs/theory/enough.md). For up to 30
keys that are kept independently, all outcomes are listed instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln

from attnlimit.checks import Array
from attnlimit.samplers import Sampler

MOST = 30
"""Terms that can be listed: 2^15 outcomes of each half."""


def chance_negative(terms: Array, keep: Array, offset: float = 0.0) -> float:
    """Chance that `offset` and the terms that are kept, each with its own chance, sum below zero.

    No more than `MOST` terms.
    """
    half = len(terms) // 2
    sums, chance = _outcomes(terms[:half], keep[:half])
    others, weight = _outcomes(terms[half:], keep[half:])
    order = np.argsort(others)
    up_to = np.concatenate([[0.0], np.cumsum(weight[order])])
    return float(chance @ up_to[np.searchsorted(others[order], -offset - sums)])


def _outcomes(terms: Array, keep: Array) -> tuple[Array, Array]:
    """Every sum of some of the terms, and its chance."""
    sums, chance = np.zeros(1), np.ones(1)
    for term, kept in zip(terms.tolist(), keep.tolist(), strict=True):
        sums = np.concatenate([sums, sums + term])
        chance = np.concatenate([chance * (1 - kept), chance * kept])
    return sums, chance


RESOLUTION = 60.0
"""The sign is smoothed over this part of the largest term that a level allows."""

NEGLIGIBLE = 1e-9

_LEVEL = 4.0  # from one level to the next
_BLOCK = 128
_ROOM = 1.2  # the wave's flat part, over the furthest that the sum can be
_CUT = 4.0  # deviations of the smoothing, in frequency, that are summed

Complex = NDArray[np.complex128]
Within = Callable[[int, Array], Complex]
"""E[exp(iu sum); only the j smallest terms are drawn], from j and frequencies u."""


def chance_below(sampler: Sampler, scores: Array, log_odds: Array, threshold: float) -> float:
    """Chance that the log-odds over what `sampler` keeps of one bag are below a threshold.

    `log_odds` are those of each instance alone.
    """
    kept = sampler.inclusion_probabilities(
        torch.from_numpy(scores)[None], torch.zeros(1, dtype=torch.long)
    )
    keep = kept[0].double().numpy()
    seen = keep > 0
    logs = (scores - np.log(np.maximum(keep, 1e-300)) if sampler.weighted else scores)[seen]
    terms = np.exp(logs - logs.max()) * (log_odds[seen] - threshold)
    order = np.argsort(np.abs(terms))
    terms, keep = terms[order], keep[seen][order]
    if sampler.draws == "nothing" or len(terms) == 1:
        return float(terms.sum() < 0)
    if sampler.draws == "independent":
        # what is kept for sure is often largest, and must not set how finely the rest is seen
        sure = keep >= 1
        chancy, offset = terms[~sure], float(terms[sure].sum())
        if len(chancy) <= MOST:
            return chance_negative(chancy, keep[~sure], offset)
        return _negative(chancy, None, _independent(chancy, keep[~sure]), offset)
    size = int(sampler.size)  # type: ignore[attr-defined]
    if sampler.draws == "with replacement":
        return _negative(terms, size, _with_replacement(terms, size))
    if size >= len(terms):
        return float(terms.sum() < 0)
    return _negative(terms, size, _without_replacement(terms, size))


def decision_changes(sampler: Sampler, scores: Array, log_odds: Array, whole: float) -> float:
    """Chance that the sign of the log-odds is not that of `whole`, over all instances."""
    below = chance_below(sampler, scores, log_odds, 0.0)
    return below if whole >= 0 else 1 - below


def _negative(terms: Array, drawn: int | None, within: Within, offset: float = 0.0) -> float:
    """Chance that an offset and the terms drawn, in ascending order of size, sum below zero.

    `drawn` terms are drawn, equal ones among them perhaps; None if each is drawn once at most.
    """
    if len(terms) == 0:
        return float(offset < 0)
    sizes = np.abs(terms)
    zero = np.zeros(1)
    chance, below, mass_below = 0.0, 0, 0.0
    for end in _levels(sizes):
        mass = float(within(end, zero)[0].real)
        if mass - mass_below > NEGLIGIBLE:
            top = float(sizes[end - 1])
            furthest = float(sizes[:end].sum()) if drawn is None else drawn * top
            if abs(offset) >= furthest:
                sign = float(np.sign(offset)) * (mass - mass_below)
            else:
                less = below if mass_below > NEGLIGIBLE else 0
                sign = _mean_sign(end, less, within, top, furthest, offset)
            chance += (mass - mass_below - sign) / 2
        below, mass_below = end, mass
    return float(np.clip(chance, 0.0, 1.0))


def _levels(sizes: Array) -> list[int]:
    """How many of the ascending sizes are in each level and those below it."""
    ends: list[int] = []
    end = len(sizes)
    while end > 0:
        ends.append(end)
        end = int(np.searchsorted(sizes, sizes[end - 1] / _LEVEL)) if sizes[end - 1] > 0 else 0
    return ends[::-1]


def _mean_sign(
    end: int, below: int, within: Within, top: float, furthest: float, offset: float
) -> float:
    """E[sign of the sum] over draws from the `end` smallest terms but not from `below` alone."""
    period = _ROOM * (furthest + abs(offset))
    most = max(64, int(np.ceil(RESOLUTION * period / top * _CUT / (2 * np.pi))))
    smooth = _CUT * period / (2 * np.pi * most)
    total = 0.0
    for start in range(0, most, _BLOCK):
        odd = 2 * np.arange(start, min(start + _BLOCK, most)) + 1.0
        frequency = np.asarray(odd * np.pi / period, dtype=np.float64)
        transform = within(end, frequency) - (within(below, frequency) if below else 0.0)
        transform = transform * np.exp(1j * frequency * offset)
        total += float((transform.imag / odd) @ np.exp(-0.5 * (frequency * smooth) ** 2))
        if np.abs(transform).max() < NEGLIGIBLE:
            break
    return 4 / np.pi * total


def _with_replacement(terms: Array, size: int) -> Within:
    def within(end: int, u: Array) -> Complex:
        turned = np.exp(1j * u[:, None] * terms[:end])
        return np.asarray((turned.sum(axis=1) / len(terms)) ** size)

    return within


def _independent(terms: Array, keep: Array) -> Within:
    def within(end: int, u: Array) -> Complex:
        factor = 1 - keep[:end] + keep[:end] * np.exp(1j * u[:, None] * terms[:end])
        return np.asarray(np.prod(factor, axis=1) * np.prod(1 - keep[end:]))

    return within


def _without_replacement(terms: Array, size: int) -> Within:
    total = len(terms)

    def within(end: int, u: Array) -> Complex:
        if end < size:
            return np.zeros(len(u), dtype=np.complex128)
        ways = gammaln(end + 1) - gammaln(end - size + 1) + gammaln(total - size + 1)
        return np.exp(ways - gammaln(total + 1)) * _subsets(terms[:end], size, u)

    return within


def _subsets(terms: Array, size: int, u: Array) -> Complex:
    """Mean of exp(iu sum) over subsets of `size` terms, from those of the first j terms."""
    if 2 * size > len(terms):  # what is left out is smaller, and the sum of all is known
        rest = _subsets(terms, len(terms) - size, u)
        return np.exp(1j * u * terms.sum()) * np.conj(rest)
    means = np.zeros((size + 1, len(u)), dtype=np.complex128)
    means[0] = 1.0
    share = np.arange(1, size + 1)[:, None]
    for j, term in enumerate(terms.tolist(), start=1):
        k = min(j, size)
        turned = means[:k] * np.exp(1j * u * term)
        means[1 : k + 1] += (share[:k] / j) * (turned - means[1 : k + 1])
    return means[size]
