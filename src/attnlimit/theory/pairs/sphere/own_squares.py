"""What tokens on the sphere do to each other's outer products by being queries and keys at once.

A query is a key of its own, exactly; two queries are keys of each other, to first order: a token y
moves the outer product of a query x by what `known_key` says, and has its own as a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline
from scipy.special import betainc, expit, logit

from attnlimit.checks import Array
from attnlimit.theory.pairs.covariance.known_key import known_key
from attnlimit.theory.pairs.sphere.keys import SphereKeys, below_top
from attnlimit.theory.pairs.sphere.sharp import extrapolation
from attnlimit.tokens import Sphere

_QUERIES = 256
_OWN_QUERIES, _BLOCKS = 8192, 16
_SIZES, _ODDS = 12, 65
_STRATA, _LOWER = 32, 8


class QueryLaw(Protocol):
    """What one query's output does on its own."""

    def at(self, tilts: Array) -> Array:
        """Its moments; E[g^2] is the second, the participation across the fifth."""


@dataclass(frozen=True, eq=False)
class OwnKey:
    """What a query's own token, a key, adds to the second moment of its output, for each n."""

    shift: Array  # (len n, d_v, d_v)
    error: Array  # (len n,): its norm
    weight: Array  # (len n,): what the query gives its own token

    @staticmethod
    def of(keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64]) -> OwnKey:
        """The average over queries: the coefficients are smooth in size and log-odds of score."""
        x = tokens.points(_OWN_QUERIES, 2)
        tilts = keys.tilts(x)
        size = np.maximum(np.linalg.norm(tilts, axis=1), 1e-300)
        unit = tilts / size[:, None]
        half = (keys.dim - 1) / 2
        least = np.log(1e3 * float(n.max()))
        odds = np.clip(logit(betainc(half, half, (1 - (unit * x).sum(axis=1)) / 2)), -least, least)
        sizes = np.geomspace(0.99 * size.min(), 1.01 * size.max(), _SIZES)
        knots = np.linspace(odds.min() - 0.1, odds.max() + 0.1, _ODDS)
        height = 1 - below_top(keys.dim, expit(knots))
        table = np.array([_moved(keys, float(k), height, n) for k in sizes])
        own, way = x @ keys.values.T, unit @ keys.values.T
        shift, error, weight = [], [], []
        for rows in np.moveaxis(table, 1, 0):
            splines = [
                RectBivariateSpline(np.log(sizes), knots, r) for r in np.moveaxis(rows, 1, 0)
            ]
            found = np.array([spline.ev(np.log(size), odds) for spline in splines])
            parts = [np.array_split(part, _BLOCKS, axis=-1) for part in (found, own.T, way.T)]
            moments = [_own_moment(keys, *part) for part in zip(*parts, strict=True)]
            shift.append(np.mean(moments, axis=0))
            error.append(np.linalg.norm(np.std(moments, axis=0)) / np.sqrt(_BLOCKS))
            weight.append(found[0].mean())
        return OwnKey(np.array(shift), np.array(error), np.array(weight))


def _own_moment(keys: SphereKeys, found: Array, own: Array, way: Array) -> Array:
    """Average of square yy' + cross (ye' + ey') + along ee' + across I, y the own token.

    `found` (6, m) are the coefficients, `own` and `way` (d_v, m) what the values make of y and e.
    """
    _, _, square, cross, along, across = found
    mixed = (own * cross) @ way.T
    moment = (own * square) @ own.T + mixed + mixed.T + (way * along) @ way.T
    return np.asarray(moment / own.shape[1] + across.mean() * (keys.values @ keys.values.T))


def own_key_squares(
    keys: SphereKeys,
    tokens: Sphere,
    n: NDArray[np.int64],
    laws: Sequence[QueryLaw],
    typical: Array,
) -> tuple[Array, Array]:
    """What two queries' outer products gain by being keys of each other, and its error, for each n.

    `typical` (len n, d, d) is the second moment of all.
    """
    rng = np.random.default_rng(0)
    metric = keys.values.T @ keys.values
    found = []
    for tilt in keys.tilts(tokens.points(_QUERIES, 2)):
        size = float(np.linalg.norm(tilt))
        unit = tilt / size if size > 0 else np.eye(keys.dim)[0]
        above, share = _strata(float(n.max()), rng)
        height = 1 - below_top(keys.dim, above)
        moved = _moved(keys, size, height, n)[:, 2:]
        across = _across(unit, height, rng)
        both = (height[:, None] * unit + sign * across for sign in (1, -1))
        inner = sum(_inner(keys, metric, unit, y, moved, laws, typical) for y in both)
        found.append(np.asarray(inner) @ share)  # twice the average of the two
    return np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))


def _moved(keys: SphereKeys, size: float, height: Array, n: NDArray[np.int64]) -> Array:
    """What keys at these heights do to a query whose tilt has this size: (len n, 6, m)."""
    cuts, shares = extrapolation(keys.dim, n, size)
    found = [known_key(keys.nodes(float(cut), n), cut * height, n) for cut in cuts]
    return np.asarray(np.tensordot(shares, np.array(found), axes=1))


def _strata(n: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Chances P(score > s) at which to look for tokens, and what each stands for.

    The lower half of the scores evenly; the upper half evenly in log P, down to where none of n is.
    """
    depth = np.log(1e3 * n)
    rare = np.exp(-depth * (np.arange(_STRATA) + rng.random()) / _STRATA) / 2
    usual = 1 - (np.arange(_LOWER) + rng.random()) / (2 * _LOWER)
    share = np.full(_LOWER, 0.5 / _LOWER)
    return np.append(rare, usual), np.append(depth / _STRATA * rare, share)


def _across(unit: Array, height: Array, rng: np.random.Generator) -> Array:
    """Random parts across a direction of tokens at these heights along it."""
    across = rng.standard_normal((len(height), len(unit)))
    across -= np.outer(across @ unit, unit)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return np.asarray(np.sqrt(1 - height**2)[:, None] * across)


def _inner(
    keys: SphereKeys,
    metric: Array,
    unit: Array,
    y: Array,
    moved: Array,
    laws: Sequence[QueryLaw],
    typical: Array,
) -> Array:
    """<square yy' + cross (yu' + uy') + along uu' + across I, E[Gamma Gamma' | query y] - typical>.

    In the metric of outputs, for each n and token y (m, d); `moved` (len n, 4, m).
    """
    tilts = keys.tilts(y)
    asked = tilts / np.maximum(np.linalg.norm(tilts, axis=1), 1e-300)[:, None]
    key, way = y @ metric, np.broadcast_to(unit @ metric, y.shape)
    on_key, on_way = (asked * key).sum(axis=1), (asked * way).sum(axis=1)
    pairs = ((key, key, on_key**2), (key, way, on_key * on_way), (way, way, on_way**2))
    stretch = ((asked @ metric) ** 2).sum(axis=1)
    rows = []
    for (square, cross, along, across), law, usual in zip(moved, laws, typical, strict=True):
        moments = law.at(tilts)
        lean, free = moments[:, 1] - moments[:, 4], moments[:, 4]
        both, mixed, straight = (
            lean * product + free * (a * b).sum(axis=1) - ((a @ usual) * b).sum(axis=1)
            for a, b, product in pairs
        )
        trace = lean * stretch + free * (metric**2).sum() - np.sum(metric * (metric @ usual))
        rows.append(square * both + 2 * cross * mixed + along * straight + across * trace)
    return np.array(rows)
