"""What does a query's output gain by the query's being one of its own keys?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.average import PairPool, average_over_pairs
from attnlimit.theory.pairs.gaussian import GaussianKeys
from attnlimit.theory.pairs.own_keys import typical_share
from attnlimit.theory.pairs.plane import single_moment
from attnlimit.tokens.gaussian import normal_rule

_POOL, _PICKS = 2048, 63


def own_gain(white: WhitenedHead, n: NDArray[np.int64], other: Array) -> tuple[Array, Array]:
    """E|Gamma_n(x) - m|^2 with x among the keys, less the same without, and its error, for each n.

    Errors matter relative to `other`, to which it will be added.
    """
    queries = normal_rule(len(white.B), _POOL, 1)
    tilts = white.tilts(queries)
    typical = float(np.exp(np.log(n).mean()))
    share = typical_share((tilts * queries).sum(axis=1), (tilts**2).sum(axis=1), typical)
    pool = PairPool(share, np.zeros((_POOL, 0)), np.full(_POOL, 1 / _POOL))
    keys = GaussianKeys(white.values, white.offset)

    def gain(index: int) -> Array:
        own = queries[index : index + 1]
        found = [single_moment(keys, tilts[index], known, n) for known in (own, own[:0])]
        return found[0] - found[1]

    return average_over_pairs(pool, gain, _PICKS, other=other)
