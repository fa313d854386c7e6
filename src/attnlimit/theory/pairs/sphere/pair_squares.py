"""How the outer products of two outputs on the sphere vary together, averaged over pairs.

By the two-query law of squares. Beyond a cap of sharpness it goes on as a parabola in 1/size: the
two slots of one query disagree, in the hard maximum with noise, with a chance of order 1/size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS
from attnlimit.theory.pairs.average import average_over_pairs
from attnlimit.theory.pairs.covariance.square_law import product_moments
from attnlimit.theory.pairs.sphere.keys import SphereKeys
from attnlimit.theory.pairs.sphere.pool import pair_pool, query_pool
from attnlimit.theory.pairs.sphere.sharp import height_gap, pair_levels
from attnlimit.tokens import Sphere

_PICKS = 96
_FROZEN = 4.0  # the cap, as the gap of the two best scores of n
_FEW, _FROZEN_IN_FEW = 8, 3.0  # and in so few dimensions, where pairs cost more and matter less


def pair_products(
    keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64], known: Array
) -> tuple[Array, Array]:
    """Averages over pairs that are not keys, (2, len n), and their errors.

    Of the outputs' product, which is E|m_n|^2 less what single queries carry, and of how their
    outer products vary together. The latter matters relative to itself and `known`.
    """
    first, second, weight = query_pool(keys, tokens, n)
    few = keys.dim <= _FEW
    cap = (_FROZEN_IN_FEW if few else _FROZEN) / float(height_gap(keys.dim, n.max()))
    typical = float(np.sqrt((np.linalg.norm(keys.tilts(first), axis=1) ** 2).mean()))
    keys = keys.fit_for(typical)
    # Most pairs share next to nothing there, and their errors must not add up to something.
    keys = replace(keys, step=PAIRS.step) if few else keys

    def both_signs(index: int) -> Array:
        total = np.zeros((2, len(n)))
        for sign in (1, -1):
            tilts = keys.tilts(np.stack([first[index], sign * second[index]]))
            for cut, share in pair_levels(tilts, cap):
                total += share / 2 * product_moments(keys, cut, n)
        return total.ravel()

    pool = pair_pool(keys, first, second, weight, n)
    other = np.append(np.full(len(n), np.inf), known)
    found, error = average_over_pairs(pool, both_signs, _PICKS, other=other)
    return found.reshape(2, -1), error.reshape(2, -1)
