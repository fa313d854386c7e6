"""Moments of attention's output up to the fourth, over n Gaussian keys, exactly.

With g the output along the query's direction and P = sum_i p_i^2, the output is g e plus
N(0, P (I - ee')); its energy squared needs E[g^a P^b] with a + 2b <= 4. As 1/D^k is the Laplace
integral of t^{k-1}/(k-1)!, each is a sum over how many distinct keys meet.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep, alpha_grid
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.gaussian import normal_nodes
from attnlimit.theory.pairs.plane import HeightNodes

_KNOTS = 16


def joint_moments(sigma: float, n: NDArray[np.int64]) -> dict[str, Array]:
    """E[g^a P^b] for a + 2b <= 4 and each n, for a query whose scores have deviation sigma."""
    y, weight = normal_nodes(sigma)
    return key_moments(HeightNodes(sigma * y, weight, y, np.ones(len(y))), n)


def key_moments(nodes: HeightNodes, n: NDArray[np.int64], tail: float = 1.0) -> dict[str, Array]:
    """The same for keys given as nodes, with P = sum_i p_i^2 times the key's variance across.

    `tail` is the fourth moment of a key across the query's direction, against a normal key's.
    """
    y, spread = nodes.height, nodes.across
    alpha = alpha_grid(nodes.score, nodes.weight, n, PAIRS)
    sweep = Sweep.over(nodes.score, nodes.weight, alpha)
    counts = n.astype(np.float64)[:, None]
    weights = [sweep.meeting(counts, k) for k in range(5)]

    def m(power: int, degree: int, across: int = 0) -> Array:
        """E[w^power e^{-w} y^degree spread^across] on the grid of alpha."""
        return sweep.moment(power, y**degree * spread**across)

    def together(*parts: Array) -> Array:
        """Distinct keys, one for each part."""
        return weights[len(parts)] @ reduce(np.multiply, parts)

    a, b, c = m(1, 1), m(2, 2), m(3, 3)
    s, t = m(2, 0, 1), m(3, 1, 1)
    fourth = together(m(4, 4)) + 4 * together(c, a) + 3 * together(b, b) + 6 * together(b, a, a)
    mixed = together(m(4, 2, 1)) + together(b, s) + 2 * together(t, a) + together(a, a, s)
    return {
        "g": together(a),
        "g2": together(b) + together(a, a),
        "g3": (together(c) + 3 * together(b, a) + together(a, a, a)) / 2,
        "g4": (fourth + together(a, a, a, a)) / 6,
        "P": together(s),
        "gP": (together(t) + together(s, a)) / 2,
        "g2P": mixed / 6,
        "PP": (tail * together(m(4, 0, 2)) + together(s, s)) / 6,
    }


def mean_squared_energy(white: WhitenedHead, tilts: Array, n: NDArray[np.int64]) -> Array:
    """E (|V S^1/2 (Gamma_n - offset)|^2)^2 for each n, averaged over queries given by tilts."""
    sigma = np.linalg.norm(tilts, axis=1)
    knots = np.linspace(float(sigma.min()), float(sigma.max()) + 1e-9, _KNOTS)
    table = np.array([list(joint_moments(float(s), n).values()) for s in knots])
    moments = CubicSpline(knots, table)(sigma)
    return squared_energy(tilts, moments, white.metric, white.offset)


def squared_energy(tilts: Array, moments: Array, metric: Array, offset: Array) -> Array:
    """Average of the squared energy over queries, given their moments in order: (m, 8, len n)."""
    e = tilts / np.maximum(np.linalg.norm(tilts, axis=1), 1e-300)[:, None]
    e_metric = e @ metric
    ee = (e_metric * e).sum(axis=1)
    eo = e_metric @ offset
    oo = float(offset @ metric @ offset)
    # The metric across e: its trace, its squared norm, and |across M v|^2 for v = g e - offset.
    across_trace = np.trace(metric) - ee
    e_square = (e_metric**2).sum(axis=1)
    across_square = (metric**2).sum() - 2 * e_square + ee**2
    o_metric = offset @ metric
    e_cross = e_square - ee**2
    eo_cross = e_metric @ o_metric - ee * eo
    oo_cross = float(o_metric @ o_metric) - eo**2
    parts = [
        -4 * eo * oo,  # g
        4 * eo**2 + 2 * ee * oo,  # g2
        -4 * ee * eo,  # g3
        ee**2,  # g4
        4 * oo_cross + 2 * across_trace * oo,  # P
        -8 * eo_cross - 4 * across_trace * eo,  # gP
        4 * e_cross + 2 * across_trace * ee,  # g2P
        across_trace**2 + 2 * across_square,  # PP
    ]
    return np.einsum("mkn,km->n", moments, np.stack(parts)) / len(tilts) + oo**2
