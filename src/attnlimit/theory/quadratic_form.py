"""How is a weighted sum of squared normals distributed? Its CDF, by inverting its transform.

Q = sum_i w_i (g_i + c_i)^2 has the Laplace transform prod_i (1 + 2 w_i s)^{-1/2}
exp(-w_i c_i^2 s / (1 + 2 w_i s)), whose singularities lie on the negative axis. The inversion
runs along a parabola that crosses the real axis at the integrand's saddle and has its focus at
the first singularity: accurate for one degree of freedom as for thousands.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from attnlimit.checks import Array
from attnlimit.errors import NotConverged

_NODES = 512
TOLERANCE = 1e-9
_FAR = 1e4  # times the mean: the upper tail is below e^-1000 there


def quadratic_form_cdf(weights: Array, shifts: Array, value: float) -> tuple[float, float]:
    """P(Q <= value), and the difference between two rules as its numerical error."""
    used = weights > 1e-14 * max(float(weights.max(initial=0.0)), 1e-300)
    w, c2 = weights[used], shifts[used] ** 2
    constant = float((weights[~used] * shifts[~used] ** 2).sum())
    q = value - constant
    if len(w) == 0 or q <= 0:
        return (1.0 if q >= 0 and len(w) == 0 else 0.0), 0.0
    if q > _FAR * float((w * (1 + c2)).sum()):
        return 1.0, 0.0
    fine, coarse = (_invert(w, c2, q, nodes) for nodes in (2 * _NODES, _NODES))
    error = abs(fine - coarse)
    if not error < TOLERANCE:
        raise NotConverged(
            f"the distribution of the queries' score deviations is off by {error:.2g} at "
            f"{value:.4g}; use measure here.",
            reached=error,
        )
    return float(np.clip(fine, 0.0, 1.0)), error


def _log_transform(w: Array, c2: Array, s: Array) -> Array:
    factor = 1 + 2 * np.multiply.outer(s, w)
    return np.asarray(-(np.log(factor) / 2 + np.multiply.outer(s, w * c2) / factor).sum(axis=-1))


def _invert(w: Array, c2: Array, q: float, nodes: int) -> float:
    edge = -1 / (2 * float(w.max()))
    mean = float((w * (1 + c2)).sum())
    upper = q > mean  # then the saddle is negative, past the pole at 0: it gives 1 - CDF
    vertex = _saddle(w, c2, q, edge, upper)
    root = np.sqrt(vertex - edge)
    log_peak = float(_log_transform(w, c2, np.array([vertex]))[0]) + vertex * q
    reach = _reach(w, c2, q, edge, root, log_peak)
    eta = np.linspace(0, reach, nodes)
    s = edge + (root + 1j * eta) ** 2
    value = np.exp(_log_transform(w, c2, s) + s * q - log_peak) / s * (root + 1j * eta)
    # ds = 2i (root + i eta) d eta, over 2 pi i, both halves: Re / pi * 2.
    total = np.real(value)
    integral = 2 / np.pi * (total.sum() - total[0] / 2 - total[-1] / 2) * (eta[1] - eta[0])
    signed = float(integral * np.exp(log_peak))
    return 1 + signed if upper else signed


def _saddle(w: Array, c2: Array, q: float, edge: float, upper: bool) -> float:
    """Minimum over the real axis of log transform + s q - log |s|, on the pole's chosen side."""

    def slope(s: float) -> float:
        factor = 1 + 2 * s * w
        return q - float((w / factor + w * c2 / factor**2).sum()) - 1 / s

    if upper:
        low, high = edge * (1 - 1e-12), edge * 1e-12
    else:
        low, high = 1e-12 / q, (len(w) + float(c2.sum()) + 2) / q
    return float(brentq(slope, low, high, xtol=1e-14 * abs(edge), rtol=1e-12))


def _reach(w: Array, c2: Array, q: float, edge: float, root: float, log_peak: float) -> float:
    """Where on the parabola the integrand has fallen below 1e-18 of its peak."""
    eta = root / 8
    while True:
        s = edge + (root + 1j * eta) ** 2
        size = float(np.real(_log_transform(w, c2, np.array([s]))[0] + s * q)) - log_peak
        if size < -42:
            return eta
        eta *= 1.1
