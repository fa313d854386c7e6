"""Error of the mean output over n tokens on the sphere, from the law of two queries.

With mu(y) = E[Gamma_n(y) | y is a key] and delta(x; y) what the key y adds to mu(x), the
first-order effect of the queries' own keys, <V delta(x; y), V mu(y)> + <V delta(y; x), V mu(x)>,
is taken off each pair, and its average, which strata of the score <Ax, y> give, is put back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.one_query.quadrature import PAIRS, Sweep, alpha_grid, key_weights
from attnlimit.theory.two_query.average import (
    MeanError,
    PairPool,
    average_over_pairs,
    combine,
    controlled_mean,
)
from attnlimit.theory.two_query.law import joint_moment, single_moment
from attnlimit.theory.two_query.sphere_keys import (
    SphereKeys,
    below_top,
    capped,
    extrapolation,
    groups,
    height_gap,
)
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio, log_hypergeometric

_POOL = 4096
_TILTS = (1.0, 0.25)
_HEIGHT_GRID = 2001


def _reach(dim: int, n: NDArray[np.int64]) -> float:
    """Size of the tilt whose limit lies at the best height of n tokens."""
    height = 1 - float(below_top(dim, 1 / (float(n.max()) + 1)))
    return dim * max(height, 0.1) / (1 - height**2)


def pair_pool(
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


def query_pool(
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


_SIZES = 12
_HEIGHTS = 97
_QUERIES = 192
_STRATA = 32


@dataclass(frozen=True, eq=False)
class _SphereQuery:
    """The mean output of a query with a tilt of one size, whose own token is a key."""

    sweep: Sweep
    drift: Array  # E[w e^{-w} height]
    n: Array

    @staticmethod
    def of(keys: SphereKeys, size: float, n: NDArray[np.int64]) -> _SphereQuery:
        nodes = keys.nodes(size, n)
        alpha = alpha_grid(nodes.score, nodes.weight, n, PAIRS, reach=size)
        sweep = Sweep.over(nodes.score, nodes.weight, alpha)
        return _SphereQuery(sweep, sweep.moment(1, nodes.height), n.astype(np.float64))

    def alone(self, own: Array) -> Array:
        """mu = a (own token) + b (direction), for own keys of these scores: (len n, 2, m)."""
        w = key_weights(own[:, None] - self.sweep.alpha)
        fade = np.exp(-w)
        found = []
        for others in self.n - 1:
            none, one = (self.sweep.meeting(others, k) for k in (0, 1))
            found.append([(w * fade) @ none, fade @ (self.drift * one)])
        return np.array(found)

    def moved(self, own: float, key: Array) -> Array:
        """delta = a (own token) + y (key) + b (direction), by score of the key: (len n, 3, m)."""
        w, v = (key_weights(s - self.sweep.alpha) for s in (own, key[:, None]))
        fade, other = np.exp(-w), np.exp(-v)
        before = self.alone(np.array([own]))[:, :, 0]
        found = []
        for (own_before, along_before), others in zip(before, self.n - 2, strict=True):
            none, one = (fade * self.sweep.meeting(max(others, 0.0), k) for k in (0, 1))
            own_now, along_now = other @ (w * none), other @ (self.drift * one)
            found.append([own_now - own_before, (v * other) @ none, along_now - along_before])
        return np.array(found)


@dataclass(frozen=True, eq=False)
class SphereOwnKeys:
    """First-order effect of the own keys, for queries whose tilts are cut at `cap`."""

    keys: SphereKeys
    n: NDArray[np.int64]
    cap: float
    means: tuple[tuple[RectBivariateSpline, RectBivariateSpline], ...]  # for each n

    @staticmethod
    def of(keys: SphereKeys, n: NDArray[np.int64], cap: float, queries: Array) -> SphereOwnKeys:
        """The control for queries like these."""
        sizes = np.minimum(np.linalg.norm(keys.tilts(queries), axis=1), cap)
        low, high = float(sizes.min()), float(sizes.max())
        knots = np.linspace(0.9 * low, 1.001 * high + 1e-9, _SIZES)
        heights = np.sin(np.linspace(-np.pi / 2, np.pi / 2, _HEIGHTS))
        table = np.array([_SphereQuery.of(keys, float(s), n).alone(s * heights) for s in knots])
        own, along = (
            tuple(RectBivariateSpline(knots, heights, table[:, k, part]) for k in range(len(n)))
            for part in (0, 1)
        )
        return SphereOwnKeys(keys, n, cap, tuple(zip(own, along, strict=True)))

    def cut(self, queries: Array) -> Array:
        """Tilts of unit queries, none longer than the cap."""
        return capped(self.keys.tilts(queries), self.cap)

    def pair(self, x: Array, y: Array) -> Array:
        """The effect on E[Gamma_n(x).Gamma_n(y)], for each n."""
        return self._pulled(x, y[None])[0] + self._pulled(y, x[None])[0]

    def _pulled(self, x: Array, y: Array) -> Array:
        """<V delta(x; y), V mu(y)> for one query and several keys: (m, len n)."""
        tilt = self.cut(x[None])[0]
        size = float(np.linalg.norm(tilt))
        query = _SphereQuery.of(self.keys, size, self.n)
        moved = query.moved(float(tilt @ x), y @ tilt)
        values = self.keys.values
        own, along = values @ x, values @ tilt / max(size, 1e-300)
        parts = zip(np.moveaxis(moved, 1, 0)[..., None], (own, y @ values.T, along), strict=True)
        delta = sum(share * part for share, part in parts)
        return np.asarray((delta * self._means(y)).sum(axis=2).T)

    def _means(self, y: Array) -> Array:
        """V mu(y) for each n: (len n, m, d_v)."""
        tilts = self.cut(y)
        size = np.linalg.norm(tilts, axis=1)
        unit = tilts / np.maximum(size, 1e-300)[:, None]
        height = np.clip((unit * y).sum(axis=1), -1, 1)
        values = self.keys.values.T
        return np.stack(
            [
                own.ev(size, height)[:, None] * (y @ values)
                + along.ev(size, height)[:, None] * (unit @ values)
                for own, along in self.means
            ]
        )

    def average(self, queries: Array, seed: int = 0) -> tuple[Array, Array]:
        """The average of `pair` over independent queries for each n, and its standard error.

        Keys are spread evenly over log P(score > s) from 1 down to where none of n is.
        """
        rng = np.random.default_rng(seed)
        depth = np.log(1e3 * float(self.n.max()))
        found = []
        for x in queries[:_QUERIES]:
            tilt = self.cut(x[None])[0]
            size = float(np.linalg.norm(tilt))
            unit = tilt / size if size > 0 else x
            above = np.exp(-depth * (np.arange(_STRATA) + rng.random()) / _STRATA)
            height = 1 - below_top(self.keys.dim, above)
            across = rng.standard_normal((_STRATA, len(x)))
            across -= np.outer(across @ unit, unit)
            across /= np.linalg.norm(across, axis=1, keepdims=True)
            y = height[:, None] * unit + np.sqrt(1 - height**2)[:, None] * across
            found.append(2 * (depth / _STRATA * above) @ self._pulled(x, y))
        return np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))


_OWN_QUERIES = 128
_CONTROL_QUERIES = 8192
_FROZEN = 3.0  # the cap, as the gap of the two best scores of n


def sphere_mean_error(head: Head, tokens: Sphere, n: NDArray[np.int64], picks: int) -> MeanError:
    """E|m_n|^2 for each of increasing n, whatever the scale of the scores; dim at least 2."""
    keys = SphereKeys.of(head, tokens)
    unit = Sphere(tokens.dim)
    parts = [_group_error(keys, unit, group, picks) for group in groups(tokens.dim, n)]
    stacked = [(p.mse, p.numerical_error) for p in parts]
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
