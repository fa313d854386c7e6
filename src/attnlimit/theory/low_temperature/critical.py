"""Which keys does a query hear when their number grows together with the sharpness of scores?

Let the gap of a key be how far its score per unit of inverse temperature is below the largest one
possible, with P(gap < g) ~ g^a / c near zero; a is the local exponent, (d - 1)/2 on a sphere. Of n
keys one is expected within 1/beta*, beta* = (n/c)^(1/a). With beta = theta beta* the numbers
u = beta gap become, as n grows, a Poisson process with theta^-a u^a points expected below u, and
weights e^-u over their sum. All laws of it are sums over alpha, as those of n keys are
(docs/theory/critical-temperature.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import gammaln

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.one_query.quadrature import (
    EXACT,
    NORMALISATION_TOLERANCE,
    Sweep,
    check_weights,
    laplace_sums,
)
from attnlimit.tokens.score_law import resolved_panels

_DEPTH = 40.0  # natural logarithm of what counts for nothing
_RARE = 1e-18
_MOST = 600.0  # natural logarithm of a number of keys that can be written
_WIDEST = 6000.0
_WIDEST_ORDERED = 800.0
_POINTS = 16


@dataclass(frozen=True, eq=False)
class CriticalLaw(Result, Pictured):
    """Attention at `theta` times the critical inverse temperature, as the number of keys grows.

    With u the gaps in units of the temperature and p the weights. On the unit sphere the output
    falls short of the query by u / beta along it, and strays by sqrt(across / beta) to its side.
    """

    exponent: Array
    theta: Array
    participation: Array  # E sum p^2
    gap: Array  # E sum p u; equal to exponent + across/2
    gap_variance: Array  # Var sum p u
    across: Array  # 2 E sum p^2 u

    @property
    def effective_keys(self) -> Array:
        """1 / participation."""
        return 1 / self.participation

    def headline(self) -> str:
        return "attention near its critical temperature, as the number of keys grows"

    def panel(self) -> Panel:
        """Share of the nearest keys against theta, a line for each exponent."""
        lines = [
            Series(part["theta"], part["participation"], "line", f"a = {a:g}", f"a = {a:g}")
            for a, part in self.to_frame().groupby("exponent")
        ]
        return Panel("critical law", "θ = β / β*", "participation E Σ p²", lines)

    def to_frame(self) -> pd.DataFrame:
        """One row for each (exponent, theta)."""
        names = ("exponent", "theta", "participation", "gap", "gap_variance", "across")
        return table(**{name: getattr(self, name) for name in names})


def critical_law(exponent: ArrayLike, theta: ArrayLike) -> CriticalLaw:
    """Weights and gaps of keys with a local exponent, at `theta` times the critical temperature.

    Parameters
    ----------
    exponent : array
        Local exponent a of the gap to the query: (d - 1)/2 for keys with a density on the sphere
        of R^d. Broadcasts against `theta`.
    theta : array
        beta / beta*, where one key is expected within a gap of 1/beta*. Far below one the law is
        that of a local average, far above that of the nearest key.
    """
    grid_a, grid_theta = _broadcast(exponent, theta)
    found = np.empty((4, *grid_a.shape))
    for place in np.ndindex(grid_a.shape):
        found[:, *place] = _moments(float(grid_a[place]), float(grid_theta[place]))
    return CriticalLaw(grid_a, grid_theta, *found)


def ordered_weights(exponent: float, theta: float, count: int = 5) -> Array:
    """Expected weights of the nearest key, the next, ... up to `count`, as n grows.

    `exponent` and `theta` are those of `critical_law`. With t = e^-alpha and A(u) the integral of
    e^{-w} over points nearer than u, the k-th nearest is at u with the intensity there times
    A^(k-1) / (k-1)!, and all else is as for the unordered weights.
    """
    a, ratio = float(_positive(exponent, "exponent")), float(_positive(theta, "theta"))
    nodes = _nodes(a, ratio, _WIDEST_ORDERED)
    sweep = Sweep.over(-nodes.u, nodes.weight, nodes.alpha)
    nearer = _running(sweep.decay)
    alike = EXACT.step * sweep.w * sweep.decay * np.exp(-sweep.missed[:, None] - nearer)
    weights = np.empty(checks.count(count, "count"))
    for k in range(len(weights)):
        weights[k] = alike.sum()
        alike *= nearer / (k + 1)
    return weights


def averaging_law(exponent: ArrayLike, theta: ArrayLike) -> CriticalLaw:
    """Return the law far below the critical temperature: many keys, normal fluctuations.

    E sum p^2 = theta^a / (2^a Gamma(a+1)), of which the others are multiples.
    """
    a, ratio = _broadcast(exponent, theta)
    share = np.exp(a * np.log(ratio / 2) - gammaln(a + 1))
    return CriticalLaw(a, ratio, share, a + a * share / 2, share * a * (a + 1) / 4, a * share)


def nearest_law(exponent: ArrayLike, theta: ArrayLike) -> CriticalLaw:
    """Return the law far above the critical temperature: the nearest key, with a Weibull gap.

    E sum p^2 = 1 - a Gamma(2 - 1/a)/theta to first order in 1/theta, for a > 1/2; else 1.
    """
    a, ratio = _broadcast(exponent, theta)
    first, second = (ratio**k * np.exp(gammaln(1 + k / a)) for k in (1, 2))
    pairs = np.where(a > 0.5, a * np.exp(gammaln(np.maximum(2 - 1 / a, 1e-9))), 0.0)
    share, across = np.maximum(1 - pairs / ratio, 0.0), np.maximum(2 * (first - a), 0.0)
    return CriticalLaw(a, ratio, share, first, second - first**2, across)


class _Nodes(NamedTuple):
    """Where points of intensity a u^(a-1) / theta^a matter to the sums over alpha."""

    u: Array  # increasing; by panels of Gauss points
    weight: Array
    alpha: Array
    depth: float


def _nodes(a: float, theta: float, widest: float) -> _Nodes:
    nearest = _DEPTH ** (1 / a) * theta  # no key nearer: a chance of e^-40
    depth = _DEPTH
    for _ in range(60):  # deeper keys add e^-40 to the sum of weights
        log_count = a * math.log((nearest + depth) / theta)
        depth = _DEPTH + log_count
    if log_count > _MOST:
        raise BadInput(
            f"theta = {theta:.3g} leaves e^{log_count:.0f} keys to average over: they give what "
            "infinitely many give, use limit or pointwise_error."
        )
    if nearest + depth > widest:
        raise BadInput(
            f"theta = {theta:.3g} spreads the scores of the nearest keys over "
            f"{nearest + depth:.3g}: attention is a hard maximum there, use hardmax_error."
        )
    edges = [min(_RARE ** (1 / a), 1.0) * theta]
    ratio = math.expm1(min(1.5 / a, 1.0))
    while edges[-1] < nearest + depth:
        edges.append(edges[-1] + min(ratio * edges[-1], 2.0))
    u, width = resolved_panels(np.array([0.0, *edges]), _POINTS)
    highest = max(float(gammaln(a + 1)) - a * math.log(theta), 0.0) + _DEPTH
    alpha = np.arange(-nearest - math.log(_DEPTH), highest, EXACT.step)
    return _Nodes(u, width * a / u * np.exp(a * np.log(u / theta)), alpha, depth)


def _moments(a: float, theta: float) -> tuple[float, float, float, float]:
    nodes = _nodes(a, theta, _WIDEST)
    centred = (nodes.u - a)[::-1, None]  # the average's gap is a
    squares = np.concatenate([centred**2, 2 * nodes.u[::-1, None]], axis=1)
    missed, mass, square, linear, quadratic = laplace_sums(
        -nodes.u[::-1], nodes.weight[::-1], centred, squares, nodes.alpha, nodes.depth
    )
    none_met = EXACT.step * np.exp(-missed)
    check_weights(none_met @ mass, NORMALISATION_TOLERANCE)
    shift, (second, across) = float(none_met @ linear[:, 0]), none_met @ quadratic
    second += none_met @ linear[:, 0] ** 2
    # Integration by parts along u: the gap exceeds a by half of what is across.
    if not abs(shift - across / 2) <= NORMALISATION_TOLERANCE * (1 + a + across):
        raise NotConverged(
            f"the critical law's gap at exponent {a:g} misses exponent + across / 2; try a smaller "
            "one.",
            reached=abs(shift - across / 2),
        )
    return float(none_met @ square), a + across / 2, second - shift**2, across


def _running(values: Array) -> Array:
    """Integrals from the first edge up to each node, of a density whose Gauss sums are `values`.

    On each panel the polynomial through its nodes is integrated exactly.
    """
    unit, _ = np.polynomial.legendre.leggauss(_POINTS)
    basis = np.polynomial.legendre.legvander(unit, _POINTS)
    degree = np.arange(_POINTS)
    before = np.concatenate([basis[:, :1] + basis[:, 1:2], basis[:, 2:] - basis[:, :-2]], axis=1)
    # Integral of P_k from -1 is (P_{k+1} - P_{k-1})/(2k+1); coefficients are (2k+1)/2 sum w P_k f.
    matrix = (before / (2 * degree + 1)) @ ((2 * degree[:, None] + 1) / 2 * basis[:, :-1].T)
    panels = values.reshape(len(values), -1, _POINTS)
    whole = panels.sum(axis=2)
    return (panels @ matrix.T + (np.cumsum(whole, axis=1) - whole)[..., None]).reshape(values.shape)


def _broadcast(exponent: ArrayLike, theta: ArrayLike) -> list[Array]:
    return checks.broadcast(
        exponent=_positive(exponent, "exponent"), theta=_positive(theta, "theta")
    )


def _positive(value: ArrayLike, name: str) -> Array:
    array = checks.real_array(value, name)
    if not (array > 0).all():
        raise BadInput(f"{name} must be positive, got {array.min():g}.")
    return array
