"""What does one key, known to be there, do to the moments of a query's output over n keys?

    E[Gamma_n | y] = weight y + pull e,
    E[Gamma_n Gamma_n' | y] = square yy' + cross (ye' + ey') + along ee' + across I,

e the direction of the query's tilt: coefficients that depend on its size and the score of y only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep, alpha_grid, key_weights
from attnlimit.theory.pairs.plane import HeightNodes

COEFFICIENTS = ("weight", "pull", "square", "cross", "along", "across")


def known_key(nodes: HeightNodes, score: Array, n: NDArray[np.int64]) -> Array:
    """The six coefficients (len n, 6, m) for known keys of these scores (m,).

    Less what they are when nothing is known.
    """
    y, spread = nodes.height, nodes.across
    alpha = alpha_grid(nodes.score, nodes.weight, n, PAIRS, reach=float(score.max()))
    sweep = Sweep.over(nodes.score, nodes.weight, alpha)
    drift, free = sweep.moment(1, y), sweep.moment(2, spread)
    extra = sweep.moment(2, y**2) - free
    key = key_weights(score[:, None] - alpha)
    gone = np.exp(-key)
    rows = []
    for count in n.astype(np.float64):
        none, one, two = (sweep.meeting(count - 1, k) for k in range(3))  # beside the key
        once, twice = (sweep.meeting(count, k) for k in (1, 2))
        # What is left when nothing is known of the key is taken off here, where it is exact: the
        # key's effect is of order 1/n, below the error of interpolating the whole.
        known = np.stack([drift * one, extra * one + drift**2 * two, free * one], axis=1)
        pull, along, across = (gone @ known).T
        weight, cross = ((key * gone) @ np.stack([none, drift * one], axis=1)).T
        square, along = (key**2 * gone) @ none, along - extra @ once - drift**2 @ twice
        pull, across = pull - drift @ once, across - free @ once
        rows.append([weight, pull, square, cross, along, across])
    return np.array(rows)
