"""The exact error of the mean output over n tokens on the sphere, from the law of two queries.

Scores may be of any size. Beyond a cap, where one of the n keys takes nearly all the weight, the
law approaches the hard maximum's like 1/size^2 for two queries, because softmax is a maximum of
scores with independent noise of unit size; it is extrapolated from two sizes at the cap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.pairs.average import average_over_pairs, controlled_mean
from attnlimit.theory.pairs.error import MeanError, combine
from attnlimit.theory.pairs.plane import joint_moment, single_moment
from attnlimit.theory.pairs.sphere.keys import SphereKeys
from attnlimit.theory.pairs.sphere.own_keys import SphereOwnKeys
from attnlimit.theory.pairs.sphere.pool import pair_pool, query_pool
from attnlimit.theory.pairs.sphere.sharp import extrapolation, groups, height_gap
from attnlimit.tokens import Sphere

_OWN_QUERIES = 128
_CONTROL_QUERIES = 8192
_FROZEN = 3.0  # the cap, as the gap of the two best scores of n


def sphere_mean_error(head: Head, tokens: Sphere, n: NDArray[np.int64], picks: int) -> MeanError:
    """E|m_n|^2 for each of increasing n, whatever the scale of the scores; dim at least 2."""
    keys = SphereKeys.of(head, tokens)
    unit = Sphere(tokens.dim)
    parts = [_group_error(keys, unit, group, picks) for group in groups(tokens.dim, n)]
    stacked = [(p.mse, p.numerical_error, p.own_share, p.own_error) for p in parts]
    return MeanError(n, *np.concatenate(stacked, axis=1))


def _group_error(keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64], picks: int) -> MeanError:
    first, second, weight = query_pool(keys, tokens, n)
    cap = _FROZEN / float(height_gap(keys.dim, n.max()))
    typical = float(np.sqrt((np.linalg.norm(keys.tilts(first), axis=1) ** 2).mean()))
    keys = keys.fit_for(typical)
    part = (cap / typical) ** 2 if typical > cap else 1.0
    caps = [(cap, 2 - part), (cap / np.sqrt(2), part - 1)] if part < 1 else [(cap, 1.0)]
    # Sizes at which tilts are cut, and their shares in the extrapolation.
    levels = [(SphereOwnKeys.of(keys, n, c, first), share) for c, share in caps]

    def both_signs(index: int) -> Array:
        x, y = first[index], second[index]
        total = np.zeros(len(n))
        for control, share in levels:
            for other in (y, -y):
                own = np.stack([x, other])
                found = joint_moment(keys, control.cut(own), own, n)
                total += share / 2 * (found - control.pair(x, other))
        return total

    pool = pair_pool(keys, first, second, weight, n)
    own, own_error = _own_average(keys, tokens, n)
    pair, pair_error = average_over_pairs(pool, both_signs, picks, other=own / n)
    queries = tokens.points(256, 2)
    for control, share in levels:
        average, error = control.average(queries)
        pair = pair + share * average
        pair_error = np.hypot(pair_error, share * error)
    return combine(n, own, own_error, pair, pair_error)


def _own_average(keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64]) -> tuple[Array, Array]:
    """E|Gamma_n(x)|^2 over queries and its error; for one query the limit is reached like 1/size.

    How the values stretch the query's direction is the control.
    """
    points = tokens.points(_CONTROL_QUERIES, 1)
    tilts = keys.tilts(points)
    sizes = np.maximum(np.linalg.norm(tilts, axis=1), 1e-300)
    gains = ((tilts / sizes[:, None] @ keys.values.T) ** 2).sum(axis=1)
    found = []
    for x, tilt, size in zip(*(a[:_OWN_QUERIES] for a in (points, tilts, sizes)), strict=True):
        cuts, shares = extrapolation(keys.dim, n, size)
        rows = []
        for cut in cuts:
            output = keys.values @ tilt * keys.limit_height(float(cut)) / size
            rows.append(single_moment(keys, tilt * cut / size, x[None], n) + output @ output)
        found.append(shares @ np.array(rows))
    control = np.repeat(gains[:_OWN_QUERIES, None], len(n), axis=1)
    weight = np.full(_OWN_QUERIES, 1 / _OWN_QUERIES)
    return controlled_mean(np.array(found), control, np.full(len(n), gains.mean()), weight)
