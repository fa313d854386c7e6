"""The error of the outputs' covariance over n tokens on the sphere, E|Cov_n - Cov|_F^2.

Given the query, E[Gamma_n Gamma_n'] = E[g^2] ee' + P (I - ee'), so that the bias is known; what one
query's outer product varies by follows from fourth moments, what two queries' vary by together from
the two-query law of squares, and from their being keys of each other. Weak attention has its own
law, and each is weighed by its error (docs/theory/sphere.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.pairs.covariance.error import (
    CovarianceError,
    mean_energy,
    mean_square,
    squared_bias,
    summed,
    two_queries,
    weighed,
)
from attnlimit.theory.pairs.covariance.output_energy import key_moments, squared_energy
from attnlimit.theory.pairs.error import MeanError
from attnlimit.theory.pairs.sphere.keys import SphereKeys
from attnlimit.theory.pairs.sphere.own_squares import OwnKey, own_key_squares
from attnlimit.theory.pairs.sphere.pair_squares import pair_products
from attnlimit.theory.pairs.sphere.sharp import extrapolation, groups
from attnlimit.theory.pairs.sphere.weak import weak_sphere_error
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio

_QUERIES = 4096
_KNOTS = 12
_OWN = 2.0  # products of two outputs have two slots for each own token
_TIED = 0.25  # of what ties the mean's own square to the covariance
_ENOUGH = 0.01  # relative error from which on the weak limit is enough by itself


def sphere_covariance_error(
    head: Head, tokens: Sphere, n: NDArray[np.int64], mean: MeanError
) -> CovarianceError:
    """Error of the outputs' covariance, given the exact error of their mean at the same n."""
    weak = weak_sphere_error(head, tokens, n)
    if weak is not None and (weak.numerical_error <= _ENOUGH * weak.mse).all():
        return weak
    strong = _strong_error(SphereKeys.of(head, tokens), mean)
    return strong if weak is None else weighed([weak, strong])


def _strong_error(keys: SphereKeys, mean: MeanError) -> CovarianceError:
    """The bias and the two-query law of squares, for runs of n that one cap of sharpness serves."""
    found, start = [], 0
    for group in groups(keys.dim, mean.n):
        found.append(_group_error(keys, mean.at(slice(start, start + len(group)))))
        start += len(group)
    parts = [(f.mse, f.bias_square, f.fluctuation, f.numerical_error) for f in found]
    return CovarianceError(mean.n, *np.concatenate(parts, axis=1))


def _group_error(keys: SphereKeys, mean: MeanError) -> CovarianceError:
    n, unit = mean.n, Sphere(keys.dim)
    tilts = keys.tilts(unit.points(_QUERIES))
    laws = [OneQuery.of(keys, tilts, int(count)) for count in n]
    limits = bessel_ratio(keys.dim / 2 - 1, np.linalg.norm(tilts, axis=1)) ** 2
    values, gram = keys.values, keys.values @ keys.values.T
    second = np.array([law.second_moment(tilts) for law in laws])
    outputs = values @ second @ values.T
    own = OwnKey.of(keys, unit, n)
    limit = values @ _average(tilts, limits, np.zeros(len(tilts))) @ values.T
    shift = outputs + own.shift - limit - mean_square(mean.mse, gram)
    bias = squared_bias(shift, own.error)
    energy = np.array([law.energy(keys, tilts) for law in laws])
    alone = (energy - (outputs**2).sum(axis=(1, 2))) / n
    products, errors = pair_products(keys, unit, n, np.maximum(alone, 0.0) + bias[0])
    seen, seen_error = own_key_squares(keys, unit, n, laws, second)
    # Queries that see their own tokens, or each other's, change what is of first order above.
    unsure = _OWN * own.weight * (np.abs(seen) + np.abs(products[1]) + np.abs(alone))
    seen_error = np.hypot(seen_error, unsure)
    # The mean of outputs as it is in these products: its queries are not keys.
    trace = np.trace(outputs, axis1=1, axis2=2)
    common = trace / n + (1 - 1 / n) * products[0]
    together, error = two_queries(
        n, (products[1], errors[1]), (seen, seen_error), (common, errors[0]), gram
    )
    # Given the keys outputs are independent, but not normal: m_n m_n' and Cov_n vary together.
    cumulant = n * alone - trace**2 - (outputs**2).sum(axis=(1, 2))
    tied = 2 * cumulant / n**2
    # Tokens of one length: the farther their mean, the smaller their covariance.
    unsure = np.hypot(_TIED * tied, mean_energy(common, gram))
    return summed(n, bias, alone + together - tied, np.hypot(error, unsure))


@dataclass(frozen=True, eq=False)
class OneQuery:
    """Moments of output and participation over n keys, as splines in the size of the tilt."""

    moments: CubicSpline  # in log size, of the eight moments of `key_moments`
    least: float

    @staticmethod
    def of(keys: SphereKeys, tilts: Array, n: int) -> OneQuery:
        """For queries with tilts like these."""
        sizes = np.linalg.norm(tilts, axis=1)
        least = max(float(sizes.min()), 1e-6)
        knots = np.geomspace(least, float(sizes.max()) + 1e-5, _KNOTS)
        tail = (keys.dim - 1) / (keys.dim + 1)
        rows, counts = [], np.array([n])
        for size in knots:
            cuts, shares = extrapolation(keys.dim, counts, float(size))
            nodes = [keys.nodes(float(cut), counts) for cut in cuts]
            moments = [list(key_moments(k, counts, tail).values()) for k in nodes]
            rows.append(shares @ np.array(moments)[..., 0])
        return OneQuery(CubicSpline(np.log(knots), np.array(rows)), least)

    def at(self, tilts: Array) -> Array:
        """The eight moments for each query, (m, 8)."""
        size = np.linalg.norm(tilts, axis=1)
        return np.asarray(self.moments(np.log(np.maximum(size, self.least))))

    def second_moment(self, tilts: Array) -> Array:
        """The average of E[Gamma_n Gamma_n'] before the values, (d, d)."""
        moments = self.at(tilts)
        return _average(tilts, moments[:, 1], moments[:, 4])

    def energy(self, keys: SphereKeys, tilts: Array) -> float:
        """The average of E|Gamma_n|^4."""
        metric = keys.values.T @ keys.values
        moments = self.at(tilts)[..., None]
        return float(squared_energy(tilts, moments, metric, np.zeros(keys.dim))[0])


def _average(tilts: Array, along: Array, across: Array) -> Array:
    """Average of along ee' + across (I - ee') over queries."""
    unit = tilts / np.maximum(np.linalg.norm(tilts, axis=1), 1e-300)[:, None]
    inner = (unit * (along - across)[:, None]).T @ unit / len(unit)
    return np.asarray(inner + across.mean() * np.eye(tilts.shape[1]))
