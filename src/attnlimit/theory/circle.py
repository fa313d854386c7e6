"""How are sums over all subsets of one size taken? As an average over the circle.

A uniform subset of m of R keys is keeping each independently with p = m / R, given that m are
kept. With z = e^{i theta} marking each kept key, E[f; size = m] is the average over theta of
e^{-im theta} E[f z^size], and with enough nodes the average is a sum (docs/theory/schemes.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Complex = NDArray[np.complex128]

SPREAD = 9.0
"""Deviations of the size that the nodes tell apart: sizes beyond have a chance of e^{-40}."""


def circle(rest: int, sample: int, spread: float = SPREAD) -> tuple[Complex, Complex]:
    """Nodes z, and weights such that E[f | size] is the real part of sum weight E[f z^size].

    `sample` keys of `rest`. Half of the circle counts for both halves.
    """
    share = sample / max(rest, 1)
    apart = 2 * int(np.ceil(spread * np.sqrt(rest * share * (1 - share)) / 2)) + 8
    nodes = min(rest + 1, apart)
    mark = np.exp(2j * np.pi * np.arange(nodes // 2 + 1) / nodes)
    fold = np.full(len(mark), 2.0)
    fold[0] = 1.0  # the ends are their own mirror images
    if nodes % 2 == 0:
        fold[-1] = 1.0
    return mark, mark.conj() ** sample * fold / (nodes * binom.pmf(sample, rest, share))
