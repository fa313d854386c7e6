"""How the outer products of two outputs vary together, over the same n keys, exactly.

    E<Gamma_n Gamma_n', Gamma_n* Gamma_n*'>_F = E (Gamma_n(z) . Gamma_n(z*))^2

has two slots of each query's weights, so that at most four distinct keys meet, and 1/(D D*)^2 is a
double Laplace integral. Across the plane of the two tilts a key is uniform in direction whatever
its scores, with a variance q that its place in the plane knows, so that only the participations
P = sum_i q_i p_i^2, P* and the overlap C = sum_i q_i p_i p*_i matter there. One law for Gaussian
keys (q = 1) and keys on the sphere (docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    plane: Plane
    known: dict[tuple[int, int, int, int], Array] = field(default_factory=dict)

    @staticmethod
    def of(sums: PlaneSums, alpha: PairGrid, across: Across, plane: Plane) -> SquareTable:
        """From sums over the plane's second coordinate."""
        nodes = sums.nodes
        sweep = Sweep.over(nodes.score, nodes.weight, alpha[0])
        left: dict[tuple[int, int], Array] = {}
        for j in range(3):
            now = sweep.w**j * sweep.decay
            left |= {(j, a): now * nodes.height**a for a in range(5)}
        phi = log_phi(sweep.missed[:, None] + sweep.decay @ sums.missed)
        return SquareTable(left, sums.moments, phi, alpha, across, plane)

    def moment(self, power: int, other: int, form: ArrayLike = (1.0,), times: int = 0) -> Array:
        """The moment with w^power w*^other q^times and a form of the key's place in the plane.

        The form of degree m has m + 1 coefficients, of y_0^m, y_0^(m-1) y_1, ...
        """
        coefficients = np.asarray(form)
        if times:
            found = self.across.level * self.moment(power, other, form, times - 1)
            if self.across.bend:
                longer = np.convolve(coefficients, (1.0, 0.0, 1.0))
                found = found - self.across.bend * self.moment(power, other, longer, times - 1)
            return found
        degree = len(coefficients) - 1
        parts = (c * self._known(power, other, degree - k, k) for k, c in enumerate(coefficients))
        return sum(parts, start=np.zeros(()))

    def axes(self, power: int, other: int) -> list[list[Array]]:
        """The moments with two coordinates of the key, as a matrix of arrays."""
        both = [self._known(power, other, 2 - k, k) for k in range(3)]
        return [[both[a + b] for b in (0, 1)] for a in (0, 1)]

    def _known(self, power: int, other: int, first: int, second: int) -> Array:
        key = power, other, first, second
        if key not in self.known:
            self.known[key] = self.left[power, first] @ self.right[other, second]
        return self.known[key]

    def expectation(self, meetings: list[Array], n: NDArray[np.int64], power: int) -> Array:
        """Sum of terms over (D D*)^power in which one, two, ... distinct keys meet, for each n."""
        most = len(meetings)
        phi = np.exp(self.log_phi)
        steps = np.multiply.outer(*(alpha_weights(alpha, power) for alpha in self.alpha))
        terms = [steps * phi ** (most - k) * term for k, term in enumerate(meetings, start=1)]
        counts = n.astype(np.float64)[:, None]
        powers = np.exp((counts - most) * self.log_phi.ravel())
        ways = np.cumprod(counts - np.arange(most), axis=1)  # n (n-1) ..., by how many meet
        return (ways * (powers @ np.stack(terms, axis=-1).reshape(-1, most))).sum(axis=1)


def square_moment(keys: PlaneKeys, tilts: Array, n: NDArray[np.int64]) -> Array:
    """E (Gamma_n(z) . Gamma_n(z*))^2 less its value for keys of their own, for each n.

    `tilts` (2, d) are the queries'. The queries are not among the keys.
    """
    table, apart = _tabulate(keys, tilts, n)
    return table.expectation(_meetings(table, keys.values), n, 2) - apart


def product_moments(keys: PlaneKeys, tilts: Array, n: NDArray[np.int64]) -> Array:
    """E Gamma_n(z) . Gamma_n(z*), and `square_moment`, for each n: (2, len n)."""
    table, apart = _tabulate(keys, tilts, n)
    once = table.expectation(_once(table), n, 1)
    return np.array([once, table.expectation(_meetings(table, keys.values), n, 2) - apart])


def _tabulate(keys: PlaneKeys, tilts: Array, n: NDArray[np.int64]) -> tuple[SquareTable, Array]:
    """The table of two queries, and what their squares have apart, by the same sums over alpha.

    So their errors cancel where the queries share nothing.
    """
    plane = plane_of(keys, tilts)
    nodes = [keys.nodes(size, n) for size in plane.sizes]
    precision = replace(PAIRS, step=keys.step)
    first, second = (late_grid(k.score, k.weight, n, precision) for k in nodes)
    sums = keys.sums(plane, nodes[0], (first, second), n, _DEGREES)
    table = SquareTable.of(sums, (first, second), keys.across, plane)
    return table, _apart(keys, plane, nodes, (first, second), n)


def _once(t: SquareTable) -> list[Array]:
    """Terms of the product itself, in which one and two distinct keys meet."""
    gram = t.plane.gram
    trace = t.plane.total - float(np.trace(gram))
    one = trace * t.moment(1, 1, times=1) + t.moment(1, 1, _form(gram))
    pull, other = ([t.moment(*which, unit) for unit in np.eye(2)] for which in ((1, 0), (0, 1)))
    return [one, sum(gram[a, b] * pull[a] * other[b] for a, b in _PLANE)]


def _meetings(t: SquareTable, values: Array) -> list[Array]:
    """Terms in which one to four distinct keys meet, before the powers of phi."""
    metric = values.T @ values
    turned, gram = t.plane.axes @ metric, t.plane.gram
    bent = turned @ turned.T - gram @ gram  # through directions across the plane
    trace = t.plane.total - float(np.trace(gram))
    square = float((metric**2).sum() - 2 * (turned**2).sum() + (gram**2).sum())
    m, along = t.moment, _form(gram)
    pull, other = ([m(*which, unit) for unit in np.eye(2)] for which in ((1, 0), (0, 1)))
    overlap, alone, alone_2 = (m(*which, times=1) for which in ((1, 1), (2, 0), (0, 2)))
    own, own_2, joint = t.axes(2, 0), t.axes(0, 2), t.axes(1, 1)
    # (u G u*)^2: slots a, c of the first query meet b, d of the second through G.
    facing, faced = _turned(gram, other), _turned(gram, pull)
    met = m(1, 1, along)
    apart = pull[0] * facing[0] + pull[1] * facing[1]
    one = m(2, 2, np.convolve(along, along))
    two, three, four = met**2, 2 * met * apart, apart**2
    turn = [_turned(gram, row) for row in joint]  # by the axis that stays, then the one that turns
    half = [_turned(gram, row) for row in own]
    seen = [_turned(gram, [half[0][b], half[1][b]]) for b in (0, 1)]  # G own G
    for b, d in _PLANE:
        two += seen[b][d] * own_2[b][d] + turn[d][b] * turn[b][d]
        three += own[b][d] * facing[b] * facing[d] + own_2[b][d] * faced[b] * faced[d]
        three += 2 * joint[b][d] * facing[b] * faced[d]
    for c, unit in enumerate(np.eye(2)):
        more = np.convolve(along, unit)
        two += 2 * (facing[c] * m(2, 1, more) + faced[c] * m(1, 2, more))
    # 2 trace (u G u*) C + 2 (u Q u*) C, and (u Q u) P* + (u* Q u*) P, with Q = `bent`.
    mixed = 2 * (trace * gram + bent)
    one += m(2, 2, _form(mixed + 2 * bent), times=1)
    two += m(1, 1, _form(mixed)) * overlap + m(2, 0, _form(bent)) * alone_2
    two += m(0, 2, _form(bent)) * alone
    for here, which in ((pull, (1, 2)), (other, (2, 1))):
        for a, unit in enumerate(np.eye(2)):
            spread = m(*which, unit, times=1)
            two += spread * sum((mixed[b, a] + 2 * bent[a, b]) * here[b] for b in (0, 1))
    for a, b in _PLANE:
        three += mixed[a, b] * pull[a] * other[b] * overlap
        three += bent[a, b] * (pull[a] * pull[b] * alone_2 + other[a] * other[b] * alone)
    one += t.across.tail * (trace**2 + 2 * square) * m(2, 2, times=2)
    two += (trace**2 + square) * overlap**2 + square * alone * alone_2
    return [one, two, three, four]


def _form(matrix: Array) -> Array:
    """Coefficients of y' M y."""
    return np.array([matrix[0, 0], matrix[0, 1] + matrix[1, 0], matrix[1, 1]])


def _turned(gram: Array, pair: Sequence[Array]) -> list[Array]:
    """The symmetric matrix times two arrays."""
    return [gram[a, 0] * pair[0] + gram[a, 1] * pair[1] for a in (0, 1)]


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
