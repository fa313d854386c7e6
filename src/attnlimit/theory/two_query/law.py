"""The joint law of two queries over the same n keys, E[Delta_1 . Delta_2] at every n.

1/(D D') is a double Laplace integral, so the expectation over independent keys factorises as for
one query (docs/theory/moments.md). Delta is the output minus the query's own limit. Some keys can
be known: the query tokens themselves, which are keys like any other. With t = e^{-alpha},
w = e^{s - alpha} and u = Vy - Gamma(x), the sums over one key are

    phi = E e^{-w-w'},  a = E[w e^{-w-w'} u],  a' = E[w' e^{-w-w'} u'],  b = E[w w' e^{-w-w'} u.u'],

and E[Delta_1 . Delta_2] = integral of n b phi^{n-1} + n(n-1) a.a' phi^{n-2} over (alpha, alpha').
For Gaussian and spherical keys the scores are two coordinates in the plane of the two tilts, and
across it the key is isotropic: one table of sums over the plane serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import PAIRS, Sweep, key_weights, log_phi, meeting
from attnlimit.theory.one_query.start import alpha_weights, late_grid


@dataclass(frozen=True, eq=False)
class OwnKeys:
    """Keys that are there for certain: their scores and centred values for one query."""

    score: Array  # (P,)
    value: Array  # (P, c): coordinates of V y - Gamma(x)

    def on(self, alpha: Array) -> tuple[Array, Array]:
        """e^{-sum w} (J,) and sum w u (J, c) of these keys on a grid of alpha."""
        w = key_weights(self.score - alpha[:, None])
        return np.exp(-w.sum(axis=1)), w @ self.value


@dataclass(frozen=True, eq=False)
class PairTable:
    """What a pair of queries needs of the independent keys, on a grid of (alpha, alpha')."""

    alpha: tuple[Array, Array]  # late grids
    log_phi: Array  # (J, J')
    drift: tuple[Array, Array]  # (J, J', c) each: E[w e^{-w-w'} u], E[w' e^{-w-w'} u'], in the
    # first c of the coordinates that the own keys' values have
    shared: Array  # (J, J'): E[w w' e^{-w-w'} <u, u'>]


def tabulate_pair(
    scores: tuple[Array, Array],
    weight: Array,
    values: tuple[Array, Array],
    alpha: tuple[Array, Array],
) -> PairTable:
    """The table for keys given as nodes: scores (K,), weights (K,), centred values (K, c)."""
    first, v = Sweep.over(scores[0], weight, alpha[0]), key_weights(scores[1] - alpha[1][:, None])
    faded = np.exp(-v)
    missed = first.missed[:, None] - first.decay @ np.expm1(-v).T
    pull, other_pull = first.decay * first.w, faded * v
    drift_1 = [(pull * c) @ faded.T for c in values[0].T]
    drift_2 = [(first.decay * c) @ other_pull.T for c in values[1].T]
    shared = (pull * (values[0] * values[1]).sum(axis=1)) @ other_pull.T
    drift = (np.stack(drift_1, axis=-1), np.stack(drift_2, axis=-1))
    return PairTable(alpha, log_phi(missed), drift, shared)


def pair_moment(table: PairTable, own: tuple[OwnKeys, OwnKeys], n: NDArray[np.int64]) -> Array:
    """E[Delta_1 . Delta_2] for each n, counting the own keys among the n."""
    fade, known = zip(*(k.on(a) for k, a in zip(own, table.alpha, strict=True)), strict=True)
    steps = [alpha_weights(alpha, 1) for alpha in table.alpha]
    drift_1, drift_2 = table.drift
    size = drift_1.shape[-1]
    phi = np.exp(table.log_phi)
    one_known = np.einsum("ijc,ic->ij", drift_2, known[0][:, :size])
    one_known += np.einsum("ijc,jc->ij", drift_1, known[1][:, :size])
    met = phi * (one_known + table.shared)
    both = np.einsum("ijc,ijc->ij", drift_1, drift_2)
    terms = np.stack([(known[0] @ known[1].T) * phi**2, met, both], axis=-1)
    terms *= np.multiply.outer(steps[0] * fade[0], steps[1] * fade[1])[..., None]
    others = n.astype(np.float64) - len(own[0].score)
    powers = np.exp((others - 2)[:, None] * table.log_phi.ravel())
    none, one, two = (powers @ terms.reshape(-1, 3)).T
    return none + others * one + others * (others - 1) * two


@dataclass(frozen=True, eq=False)
class OneQuery:
    """What one query needs of the independent keys and of those that are known, on a late grid."""

    sweep: Sweep
    linear: Array  # (J, c): E[w e^{-w} u], of the centred values u
    known: Array  # (J, c): the same sum over the known keys
    none: Array  # (len n, J): weights of sums in which no other key meets
    one: Array  # (len n, J): and one
    fade: Array  # (J,): e^{-sum w} of the known keys
    others: Array  # (len n, 1): how many keys are not known

    @staticmethod
    def of(
        score: Array,
        weight: Array,
        linear: Array,
        own: OwnKeys,
        n: NDArray[np.int64],
        alpha: Array | None = None,
    ) -> OneQuery:
        """From nodes, centred values (K, c) at them, and the late grid if it is at hand."""
        alpha = late_grid(score, weight, n, PAIRS, own.score) if alpha is None else alpha
        sweep = Sweep.over(score, weight, alpha)
        fade, known = own.on(alpha)
        others = n.astype(np.float64)[:, None] - len(own.score)
        none, one = (fade * meeting(sweep.log_phi, others, k, 1.0) for k in range(2))
        return OneQuery(sweep, sweep.moment(1, linear), known, none, one, fade, others)

    def mean(self) -> Array:
        """E Delta, (len n, c)."""
        steps = alpha_weights(self.sweep.alpha, 1)
        return np.asarray((steps * self.none) @ self.known + (steps * self.one) @ self.linear)

    def square(self, quadratic: Array) -> Array:
        """E|Delta|^2, (len n,), from the expected square of the centred value at the nodes (K,)."""
        two = self.fade * meeting(self.sweep.log_phi, self.others, 2, 1.0)
        met = 2 * (self.known * self.linear).sum(axis=1) + self.sweep.moment(2, quadratic)
        found = self.none * (self.known**2).sum(axis=1) + self.one * met
        found += two * (self.linear**2).sum(axis=1)
        return np.asarray(found @ alpha_weights(self.sweep.alpha, 2))


_PARALLEL = 1e-6
_NOTHING = 1e-300
_DEGREES = (1, 2)  # powers of the second coordinate that products of two outputs need

PairGrid = tuple[Array, Array]


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
    gram: Array  # (2, 2): <V axis, V axis'>
    total: float  # trace of V'V


class PlaneKeys(Protocol):
    """A law of keys that is isotropic across any plane of tilts."""

    @property
    def values(self) -> Array:
        """Maps keys to outputs, (d_v, d)."""

    @property
    def offset(self) -> Array:
        """Mean limit of the queries, as a key."""

    @property
    def step(self) -> float:
        """Step in alpha for pairs."""

    def limit_height(self, size: float) -> float:
        """Height of the limit along a tilt of this size."""

    def nodes(self, size: float, n: NDArray[np.int64]) -> HeightNodes:
        """Keys as seen by a query whose tilt has this size."""

    @property
    def across(self) -> Across:
        """The key across the plane of two tilts."""

    def sums(
        self,
        plane: Plane,
        first: HeightNodes,
        alpha: PairGrid,
        n: NDArray[np.int64],
        degrees: tuple[int, ...],
    ) -> PlaneSums:
        """Sums over the plane's second coordinate, up to these powers of it beside 1, w', ..."""


@dataclass(frozen=True)
class Across:
    """A key with coordinates y in the plane of two tilts, across it: uniform in direction.

    Its variance in each direction is level - bend |y|^2; `tail` is its fourth moment against that
    of a normal key.
    """

    level: float = 1.0
    bend: float = 0.0
    tail: float = 1.0


@dataclass(frozen=True, eq=False)
class PlaneSums:
    """E[w'^k e^{-w'} y^m] over the plane's second coordinate y, given the first, w' = e^{s'-a'}."""

    nodes: HeightNodes  # the first coordinate, along the first tilt
    missed: Array  # (K, J'): 1 - E e^{-w'}
    moments: dict[tuple[int, int], Array]  # by k and m, (K, J') each


def _plane_table(keys: PlaneKeys, plane: Plane, sums: PlaneSums, alpha: PairGrid) -> PairTable:
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
    gram, law = plane.gram, keys.across
    bent = law.bend * moments[1, 2]
    rest = (pull * (law.level - law.bend * nodes.height**2)) @ moments[1, 0] - pull @ bent
    shared = (plane.total - np.trace(gram)) * rest
    shared += gram[0, 0] * ((pull * along * along_2) @ moments[1, 0])
    shared += gram[0, 1] * ((pull * along) @ first + (pull * along_2) @ moments[1, 1])
    shared += gram[1, 1] * (pull @ (moments[1, 2] - side * moments[1, 1]))
    missed = sweep.missed[:, None] + decay @ sums.missed
    return PairTable(alpha, log_phi(missed), (drift_1, drift_2), shared)


def joint_moment(keys: PlaneKeys, tilts: Array, own: Array, n: NDArray[np.int64]) -> Array:
    """E[(Gamma_n - m).(Gamma_n' - m)], less the product of the two limits, for each n.

    `tilts` (2, d) are the queries', `own` (2, d) the keys known to be among the n. m is the mean
    limit; the product of the limits less m averages to zero over queries.
    """
    plane = plane_of(keys, tilts)
    nodes = [keys.nodes(size, n) for size in plane.sizes]
    scores = own @ tilts.T  # (own key, query)
    precision = replace(PAIRS, step=keys.step)
    first, second = (
        late_grid(k.score, k.weight, n, precision, own)
        for k, own in zip(nodes, scores.T, strict=True)
    )
    alpha = first, second
    factor = np.array(plane.limits) / np.maximum(plane.sizes, _NOTHING)
    limits = factor[:, None] * tilts
    vectors = np.concatenate([plane.axes, own - limits[0], own - limits[1]]) @ keys.values.T
    frame = np.asarray(np.linalg.qr(vectors.T, mode="r")).T  # the six vectors' coordinates, by row
    sums = keys.sums(plane, nodes[0], alpha, n, _DEGREES)
    table = _plane_table(keys, plane, sums, alpha)
    turned = (table.drift[0] @ frame[:2, :2], table.drift[1] @ frame[:2, :2])
    known = (OwnKeys(scores[:, 0], frame[2:4]), OwnKeys(scores[:, 1], frame[4:]))
    joint = pair_moment(replace(table, drift=turned), known, n)
    outputs = (limits - keys.offset) @ keys.values.T
    fine = alpha if keys.step == PAIRS.step else (None, None)
    for here, other in ((0, 1), (1, 0)):
        alone = _one_query(keys, nodes[here], tilts[here], own, n, fine[here])
        joint += alone.mean() @ outputs[other]
    return joint


def single_moment(keys: PlaneKeys, tilt: Array, own: Array, n: NDArray[np.int64]) -> Array:
    """E|Gamma_n - m|^2, less |Gamma - m|^2, for one query; `own` (P, d) are keys for certain."""
    size = float(np.linalg.norm(tilt))
    limit = keys.limit_height(size) * tilt / max(size, _NOTHING)
    nodes = keys.nodes(size, n)
    along = keys.values @ (tilt / max(size, _NOTHING))
    gain = float(along @ along)
    square = (nodes.height - keys.limit_height(size)) ** 2 * gain
    square += nodes.across * (float((keys.values**2).sum()) - gain)
    alone = _one_query(keys, nodes, tilt, own, n)
    return alone.square(square) + 2 * alone.mean() @ (keys.values @ (limit - keys.offset))


def _one_query(
    keys: PlaneKeys,
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


def plane_of(keys: PlaneKeys, tilts: Array) -> Plane:
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
    outputs = axes @ keys.values.T
    limits = (keys.limit_height(sizes[0]), keys.limit_height(sizes[1]))
    total = float((keys.values**2).sum())
    return Plane(sizes, cosine, sine, limits, axes, outputs @ outputs.T, total)
