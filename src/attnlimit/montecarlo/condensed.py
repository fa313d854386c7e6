"""What do very many keys in two or three dimensions give? A small grid of weights stands for them.

An average of e^{<t, y>} over keys y is smooth in y: keys are replaced by Chebyshev points of their
box, with the weights by which polynomials through these points are summed. The grid is a product,
and so are its exponentials: a query costs sums over the grid, and no more for more keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray
from scipy.special import ive

from attnlimit.checks import Array

TOLERANCE = 1e-9
MOST_NODES = 1 << 15
MOST_POINTS = 64
CHUNK = 1 << 14


@dataclass(frozen=True)
class Condensed:
    """Weights on a grid of Chebyshev points: `nodes` of every coordinate, `weights` of them all."""

    nodes: tuple[Array, ...]
    weights: Array

    def moments(self, tilts: Array) -> tuple[Array, Array]:
        """Mean (q, d) and covariance (q, d, d) of the keys, tilted by e^{<t, y>}."""
        dim = len(self.nodes)
        powers = []
        for column, nodes in enumerate(self.nodes):
            exponents = tilts[:, column, None] * nodes
            first = np.exp(exponents - exponents.max(axis=1, keepdims=True))
            powers.append((first, first * nodes, first * nodes**2))
        total = self._sum([one[0] for one in powers])
        mean = np.empty((len(tilts), dim))
        square = np.empty((len(tilts), dim, dim))
        for i in range(dim):
            orders = np.eye(dim, dtype=int)[i]
            mean[:, i] = self._sum([one[k] for one, k in zip(powers, orders, strict=True)])
            for j in range(i + 1):
                both = orders + np.eye(dim, dtype=int)[j]
                found = self._sum([one[k] for one, k in zip(powers, both, strict=True)])
                square[:, i, j] = square[:, j, i] = found
        mean /= total[:, None]
        return mean, square / total[:, None, None] - mean[:, :, None] * mean[:, None, :]

    def _sum(self, factors: Sequence[Array]) -> Array:
        """Sum over the grid of the weights times one factor (q, m) of every coordinate."""
        found = np.tensordot(factors[0], self.weights, 1)
        for factor in factors[1:]:
            found = np.einsum("qm,qm...->q...", factor, found)
        return found


def condense(keys: Array, sizes: NDArray[np.int64], reach: float) -> list[Condensed] | None:
    """Grids for the first n keys (n, d), for every n in `sizes`; None where they are too large.

    Right to about 1e-9 of the largest e^{<t, y>}, for |t| <= `reach`.
    """
    low, high = keys.min(axis=0), keys.max(axis=0)
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-300)
    points = [_points(reach * one) for one in half]
    if np.prod(points, dtype=float) > MOST_NODES:
        return None
    unit = [np.cos(np.pi * (np.arange(m) + 0.5) / m) for m in points]
    nodes = tuple(c + a * u for c, a, u in zip(middle, half, unit, strict=True))
    total = np.zeros(points)
    found = []
    for start, end in zip([0, *sizes[:-1]], sizes, strict=True):
        for at in range(start, end, CHUNK):
            places = (keys[at : min(at + CHUNK, end)] - middle) / half
            polynomials = [chebvander(u, m - 1) for u, m in zip(places.T, points, strict=True)]
            total += _products(polynomials)
        weights = total
        for axis, (u, m) in enumerate(zip(unit, points, strict=True)):
            back = chebvander(u, m - 1) * np.where(np.arange(m) > 0, 2, 1) / m
            weights = np.moveaxis(np.tensordot(weights, back, (axis, 1)), -1, axis)
        found.append(Condensed(nodes, weights))
    return found


def _points(tilt: float) -> int:
    """How many Chebyshev points carry e^{su}, |s| <= tilt, on [-1, 1]."""
    tail = 2 * ive(np.arange(MOST_POINTS), tilt)
    return int(np.argmax(tail < TOLERANCE)) if (tail < TOLERANCE).any() else MOST_POINTS**2


def _products(factors: list[Array]) -> Array:
    """Sum over keys of the outer products of their rows."""
    *others, last = factors
    rows = np.ones((len(last), 1))
    for factor in others:
        rows = (rows[:, :, None] * factor[:, None, :]).reshape(len(last), -1)
    return (rows.T @ last).reshape([factor.shape[1] for factor in factors])
