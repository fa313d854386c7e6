"""The error of the mean output where attention is weak: no pair of queries is needed.

To first order in the scores Gamma_n(z) is the keys' mean plus W b(z), W the covariance of the n
whitened keys, so that m_n - m = ybar + W B'ybar + (W - I) offset, with ybar and W independent: its
square is a polynomial of 1/n. What strength adds for n to infinity is known in closed form
(`theory/moments.py`); what strength and finite n do together is left out, and its size stated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.theory.moments import WhitenedHead, gaussian_mean_covariance
from attnlimit.theory.pairs.error import MeanError

_WEAK = 0.1  # largest square of a singular value of B; from 0.3 on the order 1/n^2 is infinite
# n times the part of what strength adds that finite n may take away again; chosen from draws.
_TAKEN = 20.0


def weak_mean_error(white: WhitenedHead, n: NDArray[np.int64]) -> MeanError | None:
    """The error for each n, the size of what is left out as its own; nothing far from weak."""
    B, S, metric, offset = white.B, white.tilt_cov, white.metric, white.offset
    norm = float(np.linalg.norm(B, 2))
    if norm**2 > _WEAK:
        return None
    each = 1 / n.astype(np.float64)
    total, spread, shift = float(np.trace(metric)), float(np.trace(S)), float(offset @ offset)
    limits, both = float(np.sum(metric * S)), 2 * float(np.sum(metric * B))
    # By powers of 1/n: E[W M W] = (1 - 1/n) (M + tr M / n).
    keys = total + float(offset @ metric @ offset) + (1 - each) * total * shift
    asked = (1 - each) * (limits + each * total * spread)
    first_order = total + float(offset @ metric @ offset) + total * shift + limits + both
    strength_adds = float(np.trace(gaussian_mean_covariance(white))) - first_order
    mse = each * (keys + asked + (1 - each) * both + strength_adds)
    # tr B is what a query scores on its own token.
    strength = norm + float(np.expm1(spread + shift + abs(float(np.trace(B)))))
    finite = total * (spread + shift) + limits + abs(both)
    error = each**2 * (strength * finite + _TAKEN * abs(strength_adds))
    own_error = each**2 * strength * (finite + total)
    return MeanError(n, mse, error, each * (each * keys + asked), own_error)
