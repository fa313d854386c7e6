"""With what chance is a sum of few terms, each there or not, negative? By listing all outcomes.

2^m outcomes of m terms are too many to list, but those of each half of the terms are not: for every
sum of the first half, the sums of the other that leave it negative are found by bisection.
"""

from __future__ import annotations

import numpy as np

from attnlimit.checks import Array

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
