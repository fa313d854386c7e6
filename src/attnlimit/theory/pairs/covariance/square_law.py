"""How the outer products of two outputs vary together, over the same n keys, exactly.

    E<Gamma_n Gamma_n', Gamma_n* Gamma_n*'>_F = E (Gamma_n(z) . Gamma_n(z*))^2

has two slots of each query's weights, so that at most four distinct keys meet, and 1/(D D*)^2 is a
double Laplace integral. Across the plane of the two tilts a key is uniform in direction whatever
its scores, with a variance q that its place in the plane knows, so that only the participations
P = sum_i q_i p_i^2, P* and the overlap C = sum_i q_i p_i p*_i matter there. One law for Gaussian
keys (q = 1) and keys on the sphere (docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep, log_phi, meeting
from attnlimit.theory.law.start import alpha_weights, late_grid
from attnlimit.theory.pairs.plane import (
    Across,
    HeightNodes,
    PairGrid,
    Plane,
    PlaneKeys,
    PlaneSums,
    plane_of,
)

_DEGREES = (2, 3, 4)  # highest power of the second coordinate beside w*^0, w*^1, w*^2
_PLANE = tuple(product((0, 1), repeat=2))  # two coordinates of a key in the plane


@dataclass(frozen=True, eq=False)
class SquareTable:
    """E[w^j w*^k e^{-w-w*} y_a y_b ... q^c] on a grid of (alpha, alpha*), y a key in the plane."""

    left: dict[tuple[int, int], Array]  # power of w, power of y_0: (J, K)
    right: dict[tuple[int, int], Array]  # power of w*, power of y_1: (K, J*)
    log_phi: Array  # (J, J*)
    alpha: PairGrid
    across: Across
    known: dict[tuple[int, int, int, int], Array] = field(default_factory=dict)

    @staticmethod
    def of(sums: PlaneSums, alpha: PairGrid, across: Across) -> SquareTable:
        """From sums over the plane's second coordinate."""
        nodes = sums.nodes
        sweep = Sweep.over(nodes.score, nodes.weight, alpha[0])
        left: dict[tuple[int, int], Array] = {}
        for j in range(3):
            now = sweep.w**j * sweep.decay
            left |= {(j, a): now * nodes.height**a for a in range(5)}
        phi = log_phi(sweep.missed[:, None] + sweep.decay @ sums.missed)
        return SquareTable(left, sums.moments, phi, alpha, across)

    def moment(self, power: int, other: int, axes: Iterable[int] = ()) -> Array:
        """The moment with w^power w*^other and these coordinates of the key."""
        second = sum(axes := tuple(axes))
        key = (power, other, len(axes) - second, second)
        if key not in self.known:
            self.known[key] = self.left[key[0], key[2]] @ self.right[key[1], key[3]]
        return self.known[key]

    def spread(self, power: int, other: int, axes: Iterable[int] = (), times: int = 1) -> Array:
        """The same with the key's variance across the plane, to the power `times`."""
        axes = tuple(axes)
        if times == 0:
            return self.moment(power, other, axes)
        found = self.across.level * self.spread(power, other, axes, times - 1)
        if self.across.bend:
            for a in (0, 1):
                inner = self.spread(power, other, (*axes, a, a), times - 1)
                found = found - self.across.bend * inner
        return found

    def expectation(self, meetings: list[Array], n: float, power: int) -> float:
        """Sum of terms over (D D*)^power in which one, two, ... distinct keys meet."""
        total = np.zeros_like(self.log_phi)
        for distinct, term in enumerate(meetings, start=1):
            total += meeting(self.log_phi, n, distinct, 1.0) * term
        first, second = (alpha_weights(alpha, power) for alpha in self.alpha)
        return float(first @ total @ second)


def square_moment(keys: PlaneKeys, tilts: Array, n: NDArray[np.int64]) -> Array:
    """E (Gamma_n(z) . Gamma_n(z*))^2 less its value for keys of their own, for each n.

    `tilts` (2, d) are the queries'. The queries are not among the keys.
    """
    return product_moments(keys, tilts, n)[1]


def product_moments(keys: PlaneKeys, tilts: Array, n: NDArray[np.int64]) -> Array:
    """E Gamma_n(z) . Gamma_n(z*), and `square_moment`, for each n: (2, len n)."""
    plane = plane_of(keys, tilts)
    nodes = [keys.nodes(size, n) for size in plane.sizes]
    precision = replace(PAIRS, step=keys.step)
    first, second = (late_grid(k.score, k.weight, n, precision) for k in nodes)
    sums = keys.sums(plane, nodes[0], (first, second), n, _DEGREES)
    table = SquareTable.of(sums, (first, second), keys.across)
    once, twice = _once(table, plane), _meetings(table, plane, keys.values)
    joint = [[table.expectation(once, float(k), 1) for k in n]]
    joint.append([table.expectation(twice, float(k), 2) for k in n])
    # The same sums over alpha, so that their errors cancel where queries share nothing.
    return np.array([joint[0], joint[1] - _apart(keys, plane, nodes, (first, second), n)])


def _once(t: SquareTable, plane: Plane) -> list[Array]:
    """Terms of the product itself, in which one and two distinct keys meet."""
    one = (plane.total - float(np.trace(plane.gram))) * t.spread(1, 1)
    two = np.zeros_like(one)
    for a, b in product((0, 1), repeat=2):
        one += plane.gram[a, b] * t.moment(1, 1, [a, b])
        two += plane.gram[a, b] * t.moment(1, 0, [a]) * t.moment(0, 1, [b])
    return [one, two]


def _meetings(t: SquareTable, plane: Plane, values: Array) -> list[Array]:
    """Terms in which one to four distinct keys meet, before the powers of phi."""
    metric = values.T @ values
    turned, gram = plane.axes @ metric, plane.gram
    bent = turned @ turned.T - gram @ gram  # through directions across the plane
    trace = plane.total - float(np.trace(gram))
    square = float((metric**2).sum() - 2 * (turned**2).sum() + (gram**2).sum())
    m, across = t.moment, t.spread
    nothing = np.zeros_like(t.log_phi)
    one, two, three, four = (nothing.copy() for _ in range(4))
    pull, other = [m(1, 0, [a]) for a in (0, 1)], [m(0, 1, [a]) for a in (0, 1)]
    overlap, alone, alone_2 = across(1, 1), across(2, 0), across(0, 2)
    # (u G u*)^2: slots a, c of the first query meet b, d of the second through G.
    facing = [gram[a, 0] * other[0] + gram[a, 1] * other[1] for a in (0, 1)]
    faced = [gram[0, b] * pull[0] + gram[1, b] * pull[1] for b in (0, 1)]
    met = sum(gram[a, b] * m(1, 1, [a, b]) for a, b in _PLANE)
    apart = pull[0] * facing[0] + pull[1] * facing[1]
    turn = {(b, d): sum(gram[a, b] * m(1, 1, [a, d]) for a in (0, 1)) for b, d in _PLANE}
    for (a, b), (c, d) in product(_PLANE, _PLANE):
        one += gram[a, b] * gram[c, d] * m(2, 2, [a, c, b, d])
    two += met**2
    three += 2 * met * apart
    four += apart**2
    for b, d in _PLANE:
        seen = sum(gram[a, b] * gram[c, d] * m(2, 0, [a, c]) for a, c in _PLANE)
        two += seen * m(0, 2, [b, d]) + turn[b, d] * turn[d, b]
        three += m(2, 0, [b, d]) * facing[b] * facing[d] + m(0, 2, [b, d]) * faced[b] * faced[d]
        three += 2 * m(1, 1, [b, d]) * facing[b] * faced[d]
    for c in (0, 1):
        two += 2 * facing[c] * sum(gram[a, b] * m(2, 1, [a, c, b]) for a, b in _PLANE)
        two += 2 * faced[c] * sum(gram[a, b] * m(1, 2, [a, b, c]) for a, b in _PLANE)
    for a, b in _PLANE:
        # 2 trace (u G u*) C + 2 (u Q u*) C, with Q = `bent`.
        k = 2 * (trace * gram[a, b] + bent[a, b])
        one += k * across(2, 2, [a, b])
        two += k * (
            m(1, 1, [a, b]) * overlap + across(2, 1, [a]) * other[b] + across(1, 2, [b]) * pull[a]
        )
        three += k * pull[a] * other[b] * overlap
        # (u Q u) P* + (u* Q u*) P
        k = bent[a, b]
        one += 2 * k * across(2, 2, [a, b])
        two += k * (m(2, 0, [a, b]) * alone_2 + 2 * across(1, 2, [a]) * pull[b])
        two += k * (m(0, 2, [a, b]) * alone + 2 * across(2, 1, [a]) * other[b])
        three += k * (pull[a] * pull[b] * alone_2 + other[a] * other[b] * alone)
    one += t.across.tail * (trace**2 + 2 * square) * across(2, 2, times=2)
    two += (trace**2 + square) * overlap**2 + square * alone * alone_2
    return [one, two, three, four]


def _apart(
    keys: PlaneKeys, plane: Plane, nodes: list[HeightNodes], alpha: PairGrid, n: NDArray[np.int64]
) -> Array:
    """<E Gamma Gamma', E Gamma* Gamma*'> for keys of their own, for each n."""
    moments = []
    counts = n.astype(np.float64)[:, None]
    for k, here in zip(nodes, alpha, strict=True):
        sweep, steps = Sweep.over(k.score, k.weight, here), alpha_weights(here, 2)
        once, twice = (steps * meeting(sweep.log_phi, counts, j, 1.0) for j in (1, 2))
        across = once @ sweep.moment(2, k.across)
        along = once @ sweep.moment(2, k.height**2) + twice @ sweep.moment(1, k.height) ** 2
        moments.append((along - across, across))
    (along, across), (along_2, across_2) = moments
    metric = keys.values.T @ keys.values
    units = np.array([[1.0, 0.0], [plane.cosine, plane.sine]]) @ plane.axes
    turned = units @ metric
    bent = (turned**2).sum(axis=1)
    found = along * along_2 * float(turned[0] @ units[1]) ** 2
    found = found + across * across_2 * float((metric**2).sum())
    return np.asarray(found + along * across_2 * bent[0] + across * along_2 * bent[1])
