"""How the outer products of two outputs vary together, over the same n Gaussian keys, exactly.

    E<Gamma_n Gamma_n', Gamma_n* Gamma_n*'>_F = E (Gamma_n(z) . Gamma_n(z*))^2

has two slots of each query's weights, so that at most four distinct keys meet, and 1/(D D*)^2 is a
double Laplace integral. Across the plane of the two tilts keys are normal whatever their scores, so
that only the participations P, P* and the overlap C = sum_i p_i p*_i matter there
(docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep, alpha_grid, log_phi, meeting
from attnlimit.theory.pairs.gaussian import normal_nodes

_SPLINE_STEP = 0.2
_PARALLEL = 1e-6
_MOST = {0: 2, 1: 3, 2: 4}  # highest power of the second coordinate beside w*^k


@dataclass(frozen=True, eq=False)
class SquareTable:
    """E[w^j w*^k e^{-w-w*} y_a y_b ...] on a grid of (alpha, alpha*), for keys y in the plane."""

    left: dict[tuple[int, int], Array]  # power of w, power of y_0: (J, K)
    right: dict[tuple[int, int], Array]  # power of w*, power of y_1: (K, J*)
    log_phi: Array  # (J, J*)
    steps: tuple[float, float]
    known: dict[tuple[int, int, int, int], Array] = field(default_factory=dict)

    def moment(self, power: int, other: int, axes: Iterable[int] = ()) -> Array:
        """The moment with w^power w*^other and these coordinates of the key."""
        across = sum(axes := tuple(axes))
        key = (power, other, len(axes) - across, across)
        if key not in self.known:
            self.known[key] = self.left[key[0], key[2]] @ self.right[key[1], key[3]]
        return self.known[key]

    def expectation(self, meetings: list[Array], n: float) -> float:
        """Sum over the grid of terms in which one, two, ... distinct keys meet."""
        total = 0.0
        for distinct, term in enumerate(meetings, start=1):
            total += float((meeting(self.log_phi, n, distinct, 1.0) * term).sum())
        return total * self.steps[0] * self.steps[1]


def square_table(sizes: tuple[float, float], cosine: float, n: NDArray[np.int64]) -> SquareTable:
    """The table for two queries of these score deviations, whose tilts have this cosine."""
    sine = float(np.sqrt(max(1 - cosine**2, 0.0)))
    y, weight = normal_nodes(sizes[0])
    alpha = [alpha_grid(size * g, p, n, PAIRS) for size in sizes for g, p in [normal_nodes(size)]]
    sweep = Sweep.over(sizes[0] * y, weight, alpha[0])
    left = {(j, a): sweep.w**j * sweep.decay * y**a for j in range(3) for a in range(5)}
    missed, right = _across(sizes[1] * sine, alpha[1] - sizes[1] * cosine * y[:, None])
    steps = float(alpha[0][1] - alpha[0][0]), float(alpha[1][1] - alpha[1][0])
    return SquareTable(left, right, log_phi(sweep.missed[:, None] + sweep.decay @ missed), steps)


def _across(spread: float, x: Array) -> tuple[Array, dict[tuple[int, int], Array]]:
    """1 - E e^{-w}, and E[w^k e^{-w} g^m] for w = e^{spread g - x}, g normal."""
    g, weight = normal_nodes(spread)
    grid = np.arange(x.min() - 1, x.max() + 1 + _SPLINE_STEP, _SPLINE_STEP)
    sweep = Sweep.over(spread * g, weight, grid)
    names = [(k, m) for k, most in _MOST.items() for m in range(most + 1)]
    powers = np.stack([g**m for m in range(5)], axis=1)
    moments = [sweep.moment(k, powers) for k in range(4)]
    height = [moments[k][:, m] for k, m in names]
    slope = [moments[k + 1][:, m] - k * moments[k][:, m] for k, m in names]
    # The first one is 1 - phi, which keeps its digits where phi is near one.
    height[0], slope[0] = sweep.missed, -slope[0]
    found = CubicHermiteSpline(grid, np.stack(height, axis=1), np.stack(slope, axis=1))(x)
    right = {name: np.ascontiguousarray(found[..., k]) for k, name in enumerate(names)}
    missed = right[0, 0]
    return missed, right | {(0, 0): 1 - missed}


def square_moment(metric: Array, tilts: Array, n: NDArray[np.int64]) -> Array:
    """E (Gamma_n(z) . Gamma_n(z*))^2 less its value for keys of their own, for each n.

    `tilts` (2, d) are the queries', whitened, and `metric` makes inner products of outputs from
    whitened ones. The queries are not among the keys.
    """
    sizes = np.linalg.norm(tilts, axis=1)
    units = tilts / np.maximum(sizes, 1e-300)[:, None]
    cosine = float(np.clip(units[0] @ units[1], -1, 1))
    rest = units[1] - cosine * units[0]
    sine = float(np.linalg.norm(rest))
    axes = np.stack([units[0], rest / sine if sine > _PARALLEL else np.zeros_like(rest)])
    turned = axes @ metric
    gram = turned @ axes.T
    bent = turned @ turned.T - gram @ gram  # through directions across the plane
    trace = float(np.trace(metric) - np.trace(gram))
    square = float((metric**2).sum() - 2 * (turned**2).sum() + (gram**2).sum())
    table = square_table((float(sizes[0]), float(sizes[1])), cosine, n)
    meetings = _meetings(table, gram, bent, trace, square)
    joint = np.array([table.expectation(meetings, float(count)) for count in n])
    return joint - _apart(metric, units, sizes, n)


def _meetings(t: SquareTable, gram: Array, bent: Array, trace: float, square: float) -> list[Array]:
    """Terms in which one to four distinct keys meet, before the powers of phi."""
    m = t.moment
    nothing = np.zeros_like(t.log_phi)
    one, two, three, four = (nothing.copy() for _ in range(4))
    pull, other = [m(1, 0, [a]) for a in (0, 1)], [m(0, 1, [a]) for a in (0, 1)]
    overlap, alone, alone_2 = m(1, 1), m(2, 0), m(0, 2)
    # (u G u*)^2: slots a, c of the first query and b, d of the second.
    for a, c, b, d in product((0, 1), repeat=4):
        k = gram[a, b] * gram[c, d]
        one += k * m(2, 2, [a, c, b, d])
        two += k * m(2, 0, [a, c]) * m(0, 2, [b, d])
        two += k * (m(1, 1, [a, b]) * m(1, 1, [c, d]) + m(1, 1, [a, d]) * m(1, 1, [c, b]))
        two += 2 * k * (m(2, 1, [a, c, b]) * other[d] + m(1, 2, [a, b, d]) * pull[c])
        three += k * (m(2, 0, [a, c]) * other[b] * other[d] + m(0, 2, [b, d]) * pull[a] * pull[c])
        three += 2 * k * m(1, 1, [a, b]) * pull[c] * other[d]
        three += 2 * k * m(1, 1, [a, d]) * pull[c] * other[b]
        four += k * pull[a] * pull[c] * other[b] * other[d]
    for a, b in product((0, 1), repeat=2):
        # 2 trace (u G u*) C + 2 (u Q u*) C, with Q = `bent`.
        k = 2 * (trace * gram[a, b] + bent[a, b])
        one += k * m(2, 2, [a, b])
        two += k * (m(1, 1, [a, b]) * overlap + m(2, 1, [a]) * other[b] + m(1, 2, [b]) * pull[a])
        three += k * pull[a] * other[b] * overlap
        # (u Q u) P* + (u* Q u*) P
        k = bent[a, b]
        one += 2 * k * m(2, 2, [a, b])
        two += k * (m(2, 0, [a, b]) * alone_2 + 2 * m(1, 2, [a]) * pull[b])
        two += k * (m(0, 2, [a, b]) * alone + 2 * m(2, 1, [a]) * other[b])
        three += k * (pull[a] * pull[b] * alone_2 + other[a] * other[b] * alone)
    one += (trace**2 + 2 * square) * m(2, 2)
    two += (trace**2 + square) * overlap**2 + square * alone * alone_2
    return [one, two, three, four]


def _apart(metric: Array, units: Array, sizes: Array, n: NDArray[np.int64]) -> Array:
    """<E Gamma Gamma', E Gamma* Gamma*'> for keys of their own, for each n."""
    moments = []
    for size in sizes:
        y, weight = normal_nodes(float(size))
        sweep = Sweep.over(size * y, weight, alpha_grid(size * y, weight, n, PAIRS))
        once, twice = (sweep.meeting(n.astype(np.float64)[:, None], k) for k in (1, 2))
        across = once @ sweep.moment(2, np.ones_like(y))
        along = once @ sweep.moment(2, y**2) + twice @ sweep.moment(1, y) ** 2
        moments.append((along - across, across))
    (along, across), (along_2, across_2) = moments
    turned = units @ metric
    bent = (turned**2).sum(axis=1)
    found = along * along_2 * float(turned[0] @ units[1]) ** 2 + across * across_2 * np.sum(
        metric**2
    )
    return np.asarray(found + along * across_2 * bent[0] + across * along_2 * bent[1])
