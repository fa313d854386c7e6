"""How much does the mean output over the law of the queries vary, in one dimension?

For n standard normal keys and queries z ~ N(0,1) of score H z y, none of them a key,

    Var(E_z Gamma_n(z)) = E_{z,z'} E[(Gamma_n(z) - Hz)(Gamma_n(z') - Hz')],

as the limits Hz average to zero. Queries and keys are trapezoid nodes, so that the average over
pairs is a plain sum (docs/theory/moments.md, the two-query law).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS
from attnlimit.theory.law.start import late_grid
from attnlimit.theory.pairs.gaussian import normal_nodes
from attnlimit.theory.pairs.law import OwnKeys, pair_moment, tabulate_pair

_REACH, _STEP = 5.2, 0.4


def integrated_variance(horizon: float, n: NDArray[np.int64]) -> Array:
    """Variance of the mean output over the law of the queries, for each n."""
    place = np.arange(_STEP / 2, _REACH, _STEP)  # queries of one sign; the others mirror them
    share = np.exp(-(place**2) / 2)
    share /= share.sum()
    y, weight = normal_nodes(horizon * float(place[-1]))
    nobody = OwnKeys(np.empty(0), np.empty((0, 1)))
    grids = [late_grid(horizon * z * y, weight, n, PAIRS) for z in place]
    total = np.zeros(len(n))
    for i, z in enumerate(place):
        for j, other in enumerate(place[: i + 1]):
            both = share[i] * share[j] * (1 if i == j else 2)
            for sign in (1, -1):
                tilts = horizon * z, sign * horizon * other  # each the limit of its query
                scores = tilts[0] * y, tilts[1] * y
                values = (y - tilts[0])[:, None], (y - tilts[1])[:, None]
                table = tabulate_pair(scores, weight, values, (grids[i], grids[j]))
                total += both / 2 * pair_moment(table, (nobody, nobody), n)
    return total
