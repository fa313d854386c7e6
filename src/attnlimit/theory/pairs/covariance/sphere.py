"""The error of the outputs' covariance over n tokens on the sphere: its bias, and its noise.

The bias is exact: given the query, E[Gamma_n Gamma_n'] = E[g^2] ee' + P (I - ee'). The noise is the
delta method's while tokens are where queries look; past that, that of queries whose outputs are
either one and the same or independent (docs/theory/sphere.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.errors import NotConverged
from attnlimit.head import Head
from attnlimit.theory.moments import check_reach, quasi_covariance_influence
from attnlimit.theory.pairs.covariance.gaussian import CovarianceError, common_part
from attnlimit.theory.pairs.covariance.output_energy import key_moments, squared_energy
from attnlimit.theory.pairs.error import MeanError
from attnlimit.theory.pairs.sphere import SphereKeys
from attnlimit.theory.pairs.sphere_mean import extrapolation
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio

_QUERIES = 4096
_KNOTS = 12
_TOKENS = 1024
_REACH = 4096


def sphere_covariance_error(
    head: Head, tokens: Sphere, n: NDArray[np.int64], mean: MeanError
) -> CovarianceError:
    """Error of the outputs' covariance, given the exact error of their mean at the same n."""
    keys = SphereKeys.of(head, tokens)
    tilts = keys.tilts(Sphere(tokens.dim).points(_QUERIES))
    gram = keys.values @ keys.values.T
    spread = mean.mse / max(float(np.trace(gram)), 1e-300)
    bias, outputs, alone = [], [], []
    limits = bessel_ratio(keys.dim / 2 - 1, np.linalg.norm(tilts, axis=1)) ** 2
    for k, count in enumerate(n):
        moments = _moments(keys, tilts, int(count))
        second = _average(tilts, moments[:, 1], moments[:, 4])
        shift = _average(tilts, moments[:, 1] - limits, moments[:, 4])
        bias.append(keys.values @ shift @ keys.values.T - spread[k] * gram)
        outputs.append(keys.values @ second @ keys.values.T)
        metric = keys.values.T @ keys.values
        alone.append(squared_energy(tilts, moments, metric, np.zeros(keys.dim)))
    own = np.array(outputs)
    noise = np.array(alone) - (own**2).sum(axis=(1, 2)) - common_part(gram, own, mean.mse)
    # Two outputs are the same with probability pair / energy, or else independent.
    energy = np.trace(own, axis1=1, axis2=2)
    pair = np.maximum(mean.mse - mean.own_share, 0.0)
    frozen = np.maximum(noise, 0.0) * (1 / n + pair / np.maximum(energy, 1e-300))
    delta, delta_error = _delta_noise(head, tokens)
    fluctuation = delta / n if np.isfinite(delta) else frozen
    bias_square = (np.array(bias) ** 2).sum(axis=(1, 2))
    # Where queries are frozen the noise is a picture, not a law: all of it may be missing.
    error = delta_error / n if np.isfinite(delta) else fluctuation
    return CovarianceError(n, bias_square + fluctuation, bias_square, fluctuation, error)


def _moments(keys: SphereKeys, tilts: Array, n: int) -> Array:
    """The eight moments of output and participation for each query, (m, 8)."""
    sizes = np.linalg.norm(tilts, axis=1)
    knots = np.geomspace(max(float(sizes.min()), 1e-6), float(sizes.max()) + 1e-5, _KNOTS)
    tail = (keys.dim - 1) / (keys.dim + 1)
    rows = []
    for size in knots:
        cuts, shares = extrapolation(keys.dim, np.array([n]), float(size))
        nodes = [keys.nodes(float(cut), np.array([n])) for cut in cuts]
        rows.append(shares @ np.array([list(key_moments(k, n, tail).values()) for k in nodes]))
    return np.asarray(CubicSpline(np.log(knots), np.array(rows))(np.log(np.maximum(sizes, 1e-6))))


def _average(tilts: Array, along: Array, across: Array) -> Array:
    """Average of along ee' + across (I - ee') over queries."""
    unit = tilts / np.maximum(np.linalg.norm(tilts, axis=1), 1e-300)[:, None]
    inner = (unit * (along - across)[:, None]).T @ unit / len(unit)
    return inner + across.mean() * np.eye(tilts.shape[1])


def _delta_noise(head: Head, tokens: Sphere) -> tuple[float, float]:
    """E|psi_S|_F^2 and its standard error; infinite where too few tokens are where queries look.

    Products of different rules of queries are free of the rules' own noise.
    """
    points = tokens.points(_TOKENS, 6)
    rule = tokens.points(_REACH, 0)
    try:
        check_reach(tokens, head.tilts(points), rule, np.full(len(rule), 1 / len(rule)))
    except NotConverged:
        return np.inf, 0.0
    rules = [quasi_covariance_influence(head, tokens, points, seed) for seed in range(3)]
    energy = np.mean([(rules[k] * rules[k - 1]).sum(axis=(1, 2)) for k in range(3)], axis=0)
    return max(float(energy.mean()), 0.0), float(energy.std() / np.sqrt(len(points)))
