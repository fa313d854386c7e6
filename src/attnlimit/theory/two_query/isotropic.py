"""Two queries over keys whose law is isotropic: standard normal, or uniform on the unit sphere.

The scores of a key are two coordinates of it in the plane of the two tilts, and across the plane it
is isotropic: sums over the second coordinate for each first one, and matrix products over the
first, make the pair's table (docs/theory/moments.md, section 2). The mean's error is the average of
`joint_moment` over pairs of queries drawn from a pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import PAIRS, Precision, Sweep, late_grid, log_phi
from attnlimit.theory.two_query.law import MeanError, OneQuery, OwnKeys, PairTable, sampled_mean

_PARALLEL = 1e-6
_NOTHING = 1e-300
_POOL = 32768
_POOL_NUMBERS = 2**21  # memory: the pool of pairs shrinks in high dimensions
_SMALLEST_POOL = 512
_SCRAMBLES = 8
_OWN_PICKS = 64
_OWN_QUERIES, _STRATA = 1024, 24
_LARGEST_OVERLAP = 30.0
_NO_CUT = 1e12


@dataclass(frozen=True, eq=False)
class HeightNodes:
    """One query's keys as nodes: scores in increasing order, and heights along the tilt."""

    score: Array  # (K,)
    weight: Array  # (K,), of sum one
    height: Array  # (K,)
    across: Array  # (K,): variance of the key in each direction across the tilt


@dataclass(frozen=True, eq=False)
class Plane:
    """The plane of two tilts: sizes, cosine of their angle, and heights of the two limits."""

    sizes: tuple[float, float]
    cosine: float
    sine: float
    limits: tuple[float, float]
    axes: Array  # (2, d), orthonormal; the second is zero in one dimension


@dataclass(frozen=True, eq=False)
class PlaneSums:
    """E[w'^k e^{-w'} y^m] over the plane's second coordinate y, given the first, w' = e^{s'-a'}."""

    nodes: HeightNodes  # the first coordinate, along the first tilt
    missed: Array  # (K, J'): 1 - E e^{-w'}
    moments: dict[tuple[int, int], Array]  # by (k, m) of `MOMENTS`, (K, J') each


MOMENTS = ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2))


@dataclass(frozen=True, eq=False)
class IsotropicKeys(ABC):
    """A law of keys, which are the queries too: the tilt of a query x is `score` x + `offset`."""

    score: Array  # (d, d)
    values: Array  # (d_v, d): maps keys to outputs
    offset: Array  # (d,): mean tilt, and mean limit as a key
    precision: Precision = PAIRS

    @property
    def dim(self) -> int:
        """Dimension of the keys."""
        return len(self.score)

    def tilts(self, queries: Array) -> Array:
        """Tilts of queries, one a row."""
        return np.asarray(self.offset + queries @ self.score.T)

    @property
    @abstractmethod
    def across(self) -> tuple[float, float]:
        """(level, bend) of a key's variance across a plane: level - bend |y|^2 at y in it."""

    @abstractmethod
    def limit_height(self, size: Array | float) -> Array:
        """Height of the limit along tilts of these sizes."""

    @abstractmethod
    def log_mass(self, size: Array) -> Array:
        """Cumulant generating function at tilts of these sizes."""

    @abstractmethod
    def top(self, n: float) -> float:
        """About the height of the best of n keys."""

    @abstractmethod
    def reach(self, n: float) -> float:
        """Size of the tilt whose limit lies there."""

    @abstractmethod
    def nodes(self, size: float, n: NDArray[np.int64]) -> HeightNodes:
        """Keys as seen by a query whose tilt has this size."""

    @abstractmethod
    def sums(
        self, plane: Plane, first: HeightNodes, alpha: tuple[Array, Array], n: NDArray[np.int64]
    ) -> PlaneSums:
        """Sums over the plane's second coordinate."""

    @abstractmethod
    def pairs(self, count: int, n: NDArray[np.int64], seed: int) -> tuple[Array, Array, Array]:
        """Quasi-random pairs of queries (2 count, d), (2 count, d), and what each stands for.

        Half are independent, the others drawn where the two share keys; their weights are the ratio
        of densities, averaged over the sign of the second query.
        """

    @abstractmethod
    def at_heights(self, units: Array, chance: Array, rng: np.random.Generator) -> Array:
        """Keys (m, K, d) at the heights along `units` (m, d) that a key passes with these chances.

        Where they are across the units is drawn.
        """

    def cuts(self, n: NDArray[np.int64], size: float, pair: bool) -> list[tuple[float, float]]:
        """Sizes at which tilts are cut, and their shares in the law at this size."""
        return [(_NO_CUT, 1.0)]


def _plane_table(
    keys: IsotropicKeys, plane: Plane, sums: PlaneSums, alpha: tuple[Array, Array]
) -> PairTable:
    """The pair table from sums over the plane's second coordinate: matrix products over the first.

    The first tilt is along the first axis; the second has coordinates (cosine, sine).
    """
    nodes, moments = sums.nodes, sums.moments
    sweep = Sweep.over(nodes.score, nodes.weight, alpha[0])
    decay, pull = sweep.decay, sweep.w * sweep.decay
    along = nodes.height - plane.limits[0]
    along_2, side = nodes.height - plane.limits[1] * plane.cosine, plane.limits[1] * plane.sine
    first = moments[1, 1] - side * moments[1, 0]
    drift_1 = np.stack([(pull * along) @ moments[0, 0], pull @ moments[0, 1]], axis=-1)
    drift_2 = np.stack([(decay * along_2) @ moments[1, 0], decay @ first], axis=-1)
    outputs, (level, bend) = plane.axes @ keys.values.T, keys.across
    gram = outputs @ outputs.T
    rest = (pull * (level - bend * nodes.height**2)) @ moments[1, 0]
    rest -= bend * (pull @ moments[1, 2])
    shared = (float((keys.values**2).sum()) - np.trace(gram)) * rest
    shared += gram[0, 0] * ((pull * along * along_2) @ moments[1, 0])
    shared += gram[0, 1] * ((pull * along) @ first + (pull * along_2) @ moments[1, 1])
    shared += gram[1, 1] * (pull @ (moments[1, 2] - side * moments[1, 1]))
    missed = sweep.missed[:, None] + decay @ sums.missed
    return PairTable(alpha, log_phi(missed), (drift_1, drift_2), shared)


def joint_moment(keys: IsotropicKeys, tilts: Array, own: Array, n: NDArray[np.int64]) -> Array:
    """E[(Gamma_n - m).(Gamma_n' - m)], less the product of the two limits, for each n.

    `tilts` (2, d) are the queries', `own` (P, d) the keys known to be among the n. m is the mean
    limit; the product of the limits less m averages to zero over queries.
    """
    plane = plane_of(keys, tilts)
    nodes = [keys.nodes(size, n) for size in plane.sizes]
    scores = own @ tilts.T  # (own key, query)
    alpha = (
        late_grid(nodes[0].score, nodes[0].weight, n, keys.precision, scores[:, 0]),
        late_grid(nodes[1].score, nodes[1].weight, n, keys.precision, scores[:, 1]),
    )
    factor = np.array(plane.limits) / np.maximum(plane.sizes, _NOTHING)
    limits = factor[:, None] * tilts
    vectors = np.concatenate([plane.axes, own - limits[0], own - limits[1]]) @ keys.values.T
    frame = np.asarray(np.linalg.qr(vectors.T, mode="r")).T  # their coordinates, by row
    table = _plane_table(keys, plane, keys.sums(plane, nodes[0], alpha, n), alpha)
    drift = (table.drift[0] @ frame[:2], table.drift[1] @ frame[:2])
    count = len(own) + 2
    known = (OwnKeys(scores[:, 0], frame[2:count]), OwnKeys(scores[:, 1], frame[count:]))
    joint = PairTable(alpha, table.log_phi, drift, table.shared).moment(known, n)
    outputs = (limits - keys.offset) @ keys.values.T
    for here, other in ((0, 1), (1, 0)):
        alone = _one_query(keys, nodes[here], tilts[here], own, n, alpha[here])
        joint += alone.mean() @ outputs[other]
    return joint


def single_moment(keys: IsotropicKeys, tilt: Array, own: Array, n: NDArray[np.int64]) -> Array:
    """E|Gamma_n - m|^2 for one query; `own` (P, d) are keys for certain."""
    size = float(np.linalg.norm(tilt))
    height, unit = float(keys.limit_height(size)), tilt / max(size, _NOTHING)
    nodes, along = keys.nodes(size, n), keys.values @ unit
    gain = float(along @ along)
    square = (nodes.height - height) ** 2 * gain
    square += nodes.across * (float((keys.values**2).sum()) - gain)
    alone, limit = (
        _one_query(keys, nodes, tilt, own, n),
        keys.values @ (height * unit - keys.offset),
    )
    return alone.square(square) + 2 * alone.mean() @ limit + limit @ limit


def _one_query(
    keys: IsotropicKeys,
    nodes: HeightNodes,
    tilt: Array,
    own: Array,
    n: NDArray[np.int64],
    alpha: Array | None = None,
) -> OneQuery:
    """One of the queries by itself, own keys known."""
    size = float(np.linalg.norm(tilt))
    unit = tilt / max(size, _NOTHING)
    limit = keys.limit_height(size)
    known = OwnKeys(own @ tilt, (own - limit * unit) @ keys.values.T)
    linear = (nodes.height - limit)[:, None] * (keys.values @ unit)
    return OneQuery.of(nodes.score, nodes.weight, linear, known, n, alpha)


def plane_of(keys: IsotropicKeys, tilts: Array) -> Plane:
    """The plane of two tilts (2, d)."""
    sizes = (float(np.linalg.norm(tilts[0])), float(np.linalg.norm(tilts[1])))
    units = tilts / np.maximum(sizes, _NOTHING)[:, None]
    identity = np.eye(len(units[0]))
    first = next((u for u, size in zip(units, sizes, strict=True) if size > 0), identity[0])
    cosine = float(np.clip(first @ units[1], -1, 1))
    rest = units[1] - cosine * first
    sine = float(np.linalg.norm(rest))
    if sine < _PARALLEL:
        cosine, sine = float(np.sign(cosine)), 0.0
        least = np.abs(first).argmin()
        rest = (identity[least] - first[least] * first) * (len(first) > 1)  # any direction across
    axes = np.stack([first, rest / max(float(np.linalg.norm(rest)), _NOTHING)])
    limits = (float(keys.limit_height(sizes[0])), float(keys.limit_height(sizes[1])))
    return Plane(sizes, cosine, sine, limits, axes)


def isotropic_mean_error(keys: IsotropicKeys, n: NDArray[np.int64], picks: int) -> MeanError:
    """E|m_n - m|^2 (docs/theory/moments.md, eq. 4), from at most so many pairs of queries."""
    first, second, overlap, weight = query_pairs(keys, n)
    tilts = keys.tilts(first)
    sizes = np.linalg.norm(tilts, axis=1)
    typical = float(np.sqrt(weight @ sizes**2))
    levels = keys.cuts(n, typical, pair=True)

    def both_signs(index: int) -> Array:
        total, x = np.zeros(len(n)), first[index]
        for size, share in levels:
            for own in (np.stack([x, second[index]]), np.stack([x, -second[index]])):
                tilts = cut(keys.tilts(own), size)
                effect = own_key_effect(keys, own, own[::-1], tilts, tilts[::-1], n).sum(axis=0)
                total += share / 2 * (joint_moment(keys, tilts, own, n) - effect)
        return total

    def alone(index: int) -> Array:
        total, own = np.zeros(len(n)), first[index : index + 1]
        for size, share in keys.cuts(n, float(sizes[index]), pair=False):
            total += share * single_moment(keys, cut(tilts[index], size), own, n)
        return total

    guess = np.cosh(overlap) - 1
    pair, error = sampled_mean(both_signs, guess, weight, picks)
    # The pool itself errs, as its scrambles do in the average of the guess.
    scrambles = (weight * guess).reshape(_SCRAMBLES, -1).sum(axis=1)
    scatter = scrambles.std(ddof=1) * np.sqrt(_SCRAMBLES) / max(scrambles.sum(), _NOTHING)
    error = np.hypot(error, scatter * np.abs(pair))
    independent = first.reshape(_SCRAMBLES, 2, -1, keys.dim)[:, 0].reshape(-1, keys.dim)
    for size, share in levels:
        effect, spread = _average_effect(keys, independent[:_OWN_QUERIES], size, n)
        pair, error = pair + share * effect, np.hypot(error, share * spread)
    return MeanError.of_parts(n, sampled_mean(alone, sizes**2, weight, _OWN_PICKS), (pair, error))


def cut(tilts: Array, longest: float) -> Array:
    """The same tilts, none longer than this."""
    length = np.linalg.norm(tilts, axis=-1, keepdims=True)
    return np.asarray(tilts * (longest / np.maximum(length, longest)))


def own_key_effect(
    keys: IsotropicKeys, x: Array, y: Array, tilts: Array, others: Array, n: NDArray[np.int64]
) -> Array:
    """First-order effect of the key y on the query x, times the mean output of y: (..., len n).

    y has about the weight e^s against n - 1 typical keys at x, whose sum is that of their means, or
    where that is never reached, of its largest term. It is taken off each pair, and its average,
    which needs no pairs, is put back: pairs that attend to each other are rare, and matter.
    """
    effects = []
    metric = keys.values.T @ keys.values
    score = (tilts * y).sum(axis=-1)
    size, size_2 = (np.linalg.norm(t, axis=-1) for t in (tilts, others))
    unit = tilts / np.maximum(size, _NOTHING)[..., None]
    unit_2 = others / np.maximum(size_2, _NOTHING)[..., None]
    for count in n.astype(np.float64):
        reach, top = keys.reach(count), keys.top(count)
        mass = np.where(size < reach, keys.log_mass(size) + np.log(count - 1), size * top + 0.7)
        share = expit(score - mass)
        mean = np.minimum(keys.limit_height(size), top)[..., None] * unit
        other = np.minimum(keys.limit_height(size_2), top)[..., None] * unit_2
        effects.append(share * (((y - mean) @ metric) * (other - keys.offset)).sum(axis=-1))
    return np.stack(effects, axis=-1)


def _average_effect(
    keys: IsotropicKeys, x: Array, longest: float, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Twice the average of `own_key_effect` over independent x and y, and its standard error.

    The keys y are spread evenly over the log of the chance to be higher along the tilt of x.
    """
    depth, rng = np.log(1e3 * float(n.max())), np.random.default_rng(0)
    tilts = cut(keys.tilts(x), longest)
    unit = tilts / np.maximum(np.linalg.norm(tilts, axis=-1, keepdims=True), _NOTHING)
    place = (np.arange(_STRATA) + rng.random((len(x), _STRATA))) / _STRATA
    chance = np.exp(-depth * place)
    y = keys.at_heights(unit, chance, rng)
    effect = own_key_effect(keys, x[:, None], y, tilts[:, None], cut(keys.tilts(y), longest), n)
    each = 2 * depth / _STRATA * (chance[..., None] * effect).sum(axis=1)
    return each.mean(axis=0), each.std(axis=0) / np.sqrt(len(x))


def query_pairs(keys: IsotropicKeys, n: NDArray[np.int64]) -> tuple[Array, Array, Array, Array]:
    """Pairs of queries (M, d), (M, d), how much they share keys, and their weights of sum one.

    Two queries share keys by log(E e^{s+s'} / (E e^s E e^s')) of the two scores of a key, as far as
    n keys reach.
    """
    count = int(np.clip(2 ** int(np.log2(_POOL_NUMBERS / keys.dim)), _SMALLEST_POOL, _POOL))
    parts = [keys.pairs(count // (2 * _SCRAMBLES), n, seed) for seed in range(_SCRAMBLES)]
    first, second, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    reach = keys.reach(float(np.exp(np.log(n.astype(float)).mean())))
    tilts = keys.tilts(first), keys.tilts(second)
    sizes, lengths = (np.linalg.norm(t, axis=1) for t in tilts)
    inner = np.abs((tilts[0] * tilts[1]).sum(axis=1))
    cosine = np.minimum(inner / np.maximum(sizes * lengths, _NOTHING), 1.0)
    near, near_2 = np.minimum(sizes, reach), np.minimum(lengths, reach)
    both = np.sqrt(near**2 + near_2**2 + 2 * near * near_2 * cosine)
    overlap = keys.log_mass(both) - keys.log_mass(near) - keys.log_mass(near_2)
    return first, second, np.clip(overlap, 0.0, _LARGEST_OVERLAP), weight / weight.sum()
