"""Moments of attention's output up to the fourth, over n Gaussian keys, exactly.

With g the output along the query's direction and P = sum_i p_i^2, the output is g e plus
N(0, P (I - ee')); its energy squared needs E[g^a P^b] with a + 2b <= 4. As 1/D^k is the Laplace
integral of t^{k-1}/(k-1)!, each is a sum over how many distinct keys meet.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Sweep, alpha_grid
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.gaussian import normal_nodes
from attnlimit.theory.pairs.plane import HeightNodes

_KNOTS = 16


def joint_moments(sigma: float, n: int) -> dict[str, float]:
    """E[g^a P^b] for a + 2b <= 4, for a query whose scores have deviation sigma."""
    y, weight = normal_nodes(sigma)
    return key_moments(HeightNodes(sigma * y, weight, y, np.ones(len(y))), n)


def key_moments(nodes: HeightNodes, n: int, tail: float = 1.0) -> dict[str, float]:
    """The same for keys given as nodes, with P = sum_i p_i^2 times the key's variance across.

    `tail` is the fourth moment of a key across the query's direction, against a normal key's.
    """
    y, spread = nodes.height, nodes.across
    alpha = alpha_grid(nodes.score, nodes.weight, np.array([n]), PAIRS)
    sweep = Sweep.over(nodes.score, nodes.weight, alpha)
    weights = [sweep.meeting(n, k) for k in range(5)]

    def m(power: int, degree: int, across: int = 0) -> Array:
        """E[w^power e^{-w} y^degree spread^across] on the grid of alpha."""
        return sweep.moment(power, y**degree * spread**across)

    def together(*parts: Array) -> float:
        """Distinct keys, one for each part."""
        return float(np.prod(parts, axis=0) @ weights[len(parts)])

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


def mean_squared_energy(white: WhitenedHead, tilts: Array, n: int) -> float:
    """E (|V S^1/2 (Gamma_n - offset)|^2)^2 averaged over queries given by their tilts."""
    sigma = np.linalg.norm(tilts, axis=1)
    knots = np.linspace(float(sigma.min()), float(sigma.max()) + 1e-9, _KNOTS)
    table = np.array([list(joint_moments(float(s), n).values()) for s in knots])
    moments = CubicSpline(knots, table)(sigma)
    return squared_energy(tilts, moments, white.metric, white.offset)


def squared_energy(tilts: Array, moments: Array, metric: Array, offset: Array) -> float:
    """Average of the squared energy over queries, given their moments (m, 8) in order."""
    g, g2, g3, g4, P, gP, g2P, PP = moments.T
    sigma = np.linalg.norm(tilts, axis=1)
    e = tilts / np.maximum(sigma, 1e-300)[:, None]
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
    along = ee**2 * g4 - 4 * ee * eo * g3 + (4 * eo**2 + 2 * ee * oo) * g2 - 4 * eo * oo * g + oo**2
    mixed = 4 * (e_cross * g2P - 2 * eo_cross * gP + oo_cross * P)
    mixed += 2 * across_trace * (ee * g2P - 2 * eo * gP + oo * P)
    return float(np.mean(along + mixed + PP * (across_trace**2 + 2 * across_square)))
