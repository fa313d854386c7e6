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
from attnlimit.theory.pairs.average import PairPool, average_over_pairs, controlled_mean
from attnlimit.theory.pairs.error import MeanError, combine
from attnlimit.theory.pairs.plane import joint_moment, single_moment
from attnlimit.theory.pairs.sphere import SphereKeys, below_top
from attnlimit.theory.pairs.sphere_own_keys import SphereOwnKeys
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio, log_hypergeometric

_POOL = 4096
_OWN_QUERIES = 128
_CONTROL_QUERIES = 8192
_SHARP = 40.0  # from this size of tilts on scores are sharp enough for a coarser rule
_FROZEN = 3.0  # the cap, as the gap of the two best scores of n
_SINGLE_FROZEN = 8.0
_SPREAD = 2.5  # most by which the gap of heights may vary among the n of one group
_TILTS = (1.0, 0.25)
_HEIGHT_GRID = 2001


def sphere_mean_error(head: Head, tokens: Sphere, n: NDArray[np.int64], picks: int) -> MeanError:
    """E|m_n|^2 for each of increasing n, whatever the scale of the scores; dim at least 2."""
    keys = SphereKeys.of(head, tokens)
    unit = Sphere(tokens.dim)
    parts = [_group_error(keys, unit, group, picks) for group in _groups(tokens.dim, n)]
    stacked = [(p.mse, p.numerical_error, p.own_share, p.own_error) for p in parts]
    return MeanError(n, *np.concatenate(stacked, axis=1))


def _height_gap(dim: int, n: Array) -> Array:
    """About the gap between the best two heights of n tokens."""
    return below_top(dim, 2 / (n + 1)) - below_top(dim, 1 / (n + 1))


def _groups(dim: int, n: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Runs of the increasing n whose best heights lie similarly close: one cap serves them."""
    gap = _height_gap(dim, n.astype(np.float64))
    groups, start = [], 0
    for k in range(1, len(n) + 1):
        if k == len(n) or gap[start] > _SPREAD * gap[k]:
            groups.append(n[start:k])
            start = k
    return groups


def _group_error(keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64], picks: int) -> MeanError:
    first, second, weight = _query_pool(keys, tokens, n)
    cap = _FROZEN / float(_height_gap(keys.dim, n.max()))
    typical = float(np.sqrt((np.linalg.norm(keys.tilts(first), axis=1) ** 2).mean()))
    keys = keys.coarse() if typical > _SHARP else keys
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

    pool = _pool(keys, first, second, weight, n)
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
            rows.append(single_moment(keys, tilt * cut / size, x, n) + output @ output)
        found.append(shares @ np.array(rows))
    control = np.repeat(gains[:_OWN_QUERIES, None], len(n), axis=1)
    weight = np.full(_OWN_QUERIES, 1 / _OWN_QUERIES)
    return controlled_mean(np.array(found), control, np.full(len(n), gains.mean()), weight)


def extrapolation(dim: int, n: NDArray[np.int64], size: float) -> tuple[Array, Array]:
    """Sizes of tilts to evaluate one query's law at, and their shares in that at `size`.

    The law itself, or beyond the cap the parabola in 1/size through three sizes.
    """
    cap = _SINGLE_FROZEN / float(_height_gap(dim, n.max()))
    if size <= cap:
        return np.array([size]), np.ones(1)
    sizes = cap / np.array([1.0, 2.0, 4.0])
    nodes = 1 / sizes
    others = [np.delete(nodes, k) for k in range(3)]
    pairs = zip(nodes, others, strict=True)
    return sizes, np.array([np.prod((1 / size - rest) / (node - rest)) for node, rest in pairs])


def _reach(dim: int, n: NDArray[np.int64]) -> float:
    """Size of the tilt whose limit lies at the best height of n tokens."""
    height = 1 - float(below_top(dim, 1 / (float(n.max()) + 1)))
    return dim * max(height, 0.1) / (1 - height**2)


def _pool(
    keys: SphereKeys, first: Array, second: Array, weight: Array, n: NDArray[np.int64]
) -> PairPool:
    """Pairs matter by how much their tilts share, log E e^{s+s'} / (E e^s E e^s')."""
    b, c = keys.tilts(first), keys.tilts(second)
    sizes = np.linalg.norm(b, axis=1), np.linalg.norm(c, axis=1)
    cosine = np.abs((b * c).sum(axis=1)) / np.maximum(sizes[0] * sizes[1], 1e-300)
    reach, order = _reach(keys.dim, n), keys.dim / 2 - 1
    one, other = np.minimum(sizes[0], reach), np.minimum(sizes[1], reach)
    square = one**2 + other**2 + 2 * one * other * np.minimum(cosine, 1.0)
    joint, *alone = (log_hypergeometric(order, s) for s in (np.sqrt(square), one, other))
    return PairPool.of(joint - alone[0] - alone[1], weight, (b, c), (one, other), keys.values)


def _query_pool(
    keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """Pairs of unit queries (M, d), (M, d) and their weights, of sum one.

    Half are independent. For the others the second query is tilted towards A'Ax, where it shares
    keys with the first, at two strengths. Each weighs what it stands for under the mixture.
    """
    first = tokens.points(_POOL, 0)
    second = tokens.points(_POOL, 7)[np.random.default_rng(0).permutation(_POOL)]
    towards = keys.tilts(first) @ keys.score
    length = np.linalg.norm(towards, axis=1)
    towards = towards / np.maximum(length, 1e-300)[:, None]
    typical = float(np.sqrt((np.linalg.norm(keys.tilts(first), axis=1) ** 2).mean()))
    size = min(typical, _reach(tokens.dim, n))
    order = tokens.dim / 2 - 1
    strength = size / np.sqrt(2) * float(bessel_ratio(order, np.array([size * np.sqrt(2)]))[0])
    kinds = np.arange(_POOL) % 4  # 0 and 1 independent, 2 and 3 tilted
    mixture = np.full(_POOL, 0.5)
    strengths = [part * strength for part in _TILTS]
    for kind, tilt in zip((2, 3), strengths, strict=True):
        here = kinds == kind
        second[here] = _tilted(second[here], towards[here], tilt, tokens.dim)
    height = (second * towards).sum(axis=1)
    for tilt in strengths:
        log_mass = float(log_hypergeometric(order, np.array([tilt]))[0])
        mixture += 0.25 * np.exp(np.logaddexp(tilt * height, -tilt * height) - np.log(2) - log_mass)
    weight = 1 / mixture
    return first, second, weight / weight.sum()


def _tilted(x: Array, towards: Array, strength: float, dim: int) -> Array:
    """Move uniform points so that their density is e^{strength <towards, x>}: heights by rank."""
    angle = np.linspace(0, np.pi, _HEIGHT_GRID)
    log_density = strength * (np.cos(angle) - 1)
    with np.errstate(divide="ignore"):
        log_density = log_density + (dim - 2) * np.log(np.sin(angle)) if dim > 2 else log_density
    below = np.cumsum(np.exp(log_density - log_density.max()))
    heights = (x * towards).sum(axis=1)
    across = x - heights[:, None] * towards
    across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
    rank = (np.argsort(np.argsort(-heights)) + 0.5) / len(x)
    turn = np.interp(rank * below[-1], below, angle)
    return np.cos(turn)[:, None] * towards + np.sin(turn)[:, None] * across
