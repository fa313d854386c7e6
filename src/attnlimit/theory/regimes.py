"""Fractions of a head's queries in each regime: Gaussian fluctuations, stable ones, or frozen.

The variance of a Gaussian token's scores, as a query, is a weighted sum of squared normals,
Q = sum_i w_i (g_i + c_i)^2. Its Laplace transform prod_i (1 + 2 w_i s)^{-1/2}
exp(-w_i c_i^2 s / (1 + 2 w_i s)) has its singularities on the negative axis. The inversion runs
along a parabola that crosses the real axis at the integrand's saddle and has its focus at the first
singularity: accurate for one degree of freedom as for thousands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import NotConverged
from attnlimit.head import Head
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.limit import check_match
from attnlimit.tokens import Tokens

_SCRAMBLES = 8
_POINTS = 1 << 12


@dataclass(frozen=True, eq=False)
class Regimes(Result, Pictured):
    """Fractions of queries x ~ tokens by the standard deviation sigma of their scores.

    gaussian: sigma < sqrt(2 log n)/2; frozen: sigma > sqrt(2 log n), a handful of keys take all
    the weight; stable in between. `error` is the numerical error of the fractions.
    """

    n: NDArray[np.int64]
    gaussian: Array
    stable: Array
    frozen: Array
    threshold: Array  # sqrt(2 log n)
    typical_sigma: float  # root mean square of sigma over queries
    error: float
    method: str

    def headline(self) -> str:
        return (
            f"regimes of queries, typical score deviation {self.typical_sigma:.4g} "
            f"({self.method}, error {self.error:.1g})"
        )

    def panel(self) -> Panel:
        """Fractions of queries in each regime against n."""
        lines = [
            Series(self.n, getattr(self, name), style, name, name)
            for name, style in (("gaussian", "line"), ("stable", "dashed"), ("frozen", "dotted"))
        ]
        return Panel("regimes", "number of tokens n", "fraction of queries", lines, "log", "linear")

    def to_frame(self) -> pd.DataFrame:
        """One row for each n."""
        names = ("n", "gaussian", "stable", "frozen", "threshold")
        return table(**{name: getattr(self, name) for name in names})


def regimes(head: Head, tokens: Tokens, n: ArrayLike) -> Regimes:
    """Classify queries drawn from `tokens` by their score deviation, at each number of keys `n`.

    Gaussian tokens: from the exact distribution of sigma^2, a weighted sum of squared normals.
    Finitely many: by counting. Others: quasi-random queries, with their scatter as the error. The
    thresholds are those of Gaussian scores (the random energy model).

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> regimes = al.regimes(al.Head(3 * np.eye(2)), al.Gaussian(dim=2), [100, 10**6])
    >>> regimes.frozen.round(3)
    array([0.599, 0.215])
    """
    check_match(head, tokens, self_attention=True)
    counts = checks.token_list(n)
    threshold = np.sqrt(2 * np.log(counts.astype(np.float64)))
    root = tokens.sqrt_cov() @ head.A
    edges = np.concatenate([threshold / 2, threshold])
    atoms = tokens.atoms()
    if tokens.is_gaussian:
        below, error = _gaussian(root, tokens, edges)
        method = "exact distribution"
    elif atoms is not None:
        sigma = np.linalg.norm(atoms[0] @ root.T, axis=1)
        below, error = (sigma[:, None] < edges).T @ atoms[1], 0.0
        method = "all tokens"
    else:
        below, error = _quasi_random(root, tokens, edges)
        method = "quasi-random queries"
    narrow, wide = below[: len(counts)], below[len(counts) :]
    second_moment = tokens.cov() + np.outer(tokens.mean(), tokens.mean())
    return Regimes(
        n=counts,
        gaussian=narrow,
        stable=np.maximum(wide - narrow, 0.0),
        frozen=1 - wide,
        threshold=threshold,
        typical_sigma=float(np.sqrt(np.trace(root @ second_moment @ root.T))),
        error=error,
        method=method,
    )


def _gaussian(root: Array, tokens: Tokens, edges: Array) -> tuple[Array, float]:
    """sigma^2 = |root x|^2 for x = m + S^1/2 z: diagonalise, and the mean becomes shifts."""
    u, singular, _ = np.linalg.svd(root @ tokens.sqrt_cov())
    weights = np.zeros(len(u))
    weights[: len(singular)] = singular**2
    centre = u.T @ (root @ tokens.mean())
    acting = weights > 1e-14 * max(float(weights.max()), 1e-300)
    shifts = np.zeros_like(weights)
    shifts[acting] = centre[acting] / np.sqrt(weights[acting])
    constant = float((centre[~acting] ** 2).sum())
    if not acting.any():
        return (constant < edges**2).astype(np.float64), 0.0
    rows = [
        quadratic_form_cdf(weights[acting], shifts[acting], float(edge**2) - constant)
        for edge in edges
    ]
    return np.array([row[0] for row in rows]), max(row[1] for row in rows)


def _quasi_random(root: Array, tokens: Tokens, edges: Array) -> tuple[Array, float]:
    rows = []
    for seed in range(_SCRAMBLES):
        sigma = np.linalg.norm(tokens.points(_POINTS, seed=seed) @ root.T, axis=1)
        rows.append((sigma[:, None] < edges).mean(axis=0))
    scatter = np.std(rows, axis=0, ddof=1) / np.sqrt(_SCRAMBLES)
    return np.mean(rows, axis=0), float(scatter.max())


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
