"""The outputs' covariance where attention is weak: a cubic polynomial of the keys' own covariance.

To first order in the scores Gamma_n(z) is the keys' mean plus W b(z), with W the covariance of the
n whitened keys, so that Cov_n = L W B' W B W L' with W of Wishart's law: its second moment has six
factors W, and is a sum over the pairings of their twelve normal vectors, exact at every n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.covariance.wishart import mean_polynomial, moment_polynomial


@dataclass(frozen=True, eq=False)
class WeakError:
    """E|Cov_n - Cov|_F^2 and its bias in the limit of weak attention, exact at every n."""

    white: WhitenedHead
    mse: Array  # for each n
    bias_square: Array
    first_order: float  # the limit of n times the error

    @staticmethod
    def of(white: WhitenedHead, n: NDArray[np.int64]) -> WeakError:
        """All of it from the traces of the head's own matrices."""
        B, metric = white.B, white.metric
        matrices = {"b": B.T, "B": B, "M": metric}
        second = moment_polynomial("bBMbBM", matrices)
        cubic = mean_polynomial("bB", matrices)
        mean = _inner(cubic, cubic, metric)
        cross = _inner(cubic, [white.tilt_cov], metric)
        limit = _inner([white.tilt_cov], [white.tilt_cov], metric)
        # n - 1 degrees of freedom, and W is divided by n. The constant terms cancel.
        variance = _in_powers(second - mean, 6)
        bias = _in_powers(mean, 6) - 2 * _in_powers(cross, 3) + _in_powers(limit, 0)
        at = 1 / n.astype(np.float64)
        spread, squared = (sum(c[k] * at**k for k in range(1, 7)) for c in (variance, bias))
        return WeakError(white, np.asarray(spread + squared), np.asarray(squared), variance[1])

    def influence(self, g: Array) -> Array:
        """|psi_S|^2 of whitened tokens in this limit; its mean is `first_order`."""
        white = self.white
        values, S = white.values.T, white.tilt_cov
        key, pushed, asked = g @ values, g @ S @ values, g @ white.B @ values
        found = key[:, :, None] * pushed[:, None, :]
        found = found + np.swapaxes(found, 1, 2) + asked[:, :, None] * asked[:, None, :]
        found -= 3 * values.T @ S @ values
        return np.asarray((found**2).sum(axis=(1, 2)))


def _inner(one: list[Array], other: list[Array], metric: Array) -> Array:
    """tr(metric P metric Q) for polynomials of matrices, by powers."""
    found = np.zeros(len(one) + len(other) - 1)
    for i, P in enumerate(one):
        for j, Q in enumerate(other):
            found[i + j] += float(np.sum((metric @ P) * (metric @ Q).T))
    return found


def _in_powers(coefficients: Array, degree: int) -> Array:
    """Of 1/n, for a polynomial of n - 1 divided by n^degree: seven numbers."""
    of_n = Polynomial(coefficients)(Polynomial([-1.0, 1.0])).coef
    found = np.zeros(7)
    for k, c in enumerate(of_n):
        found[degree - k] += c
    return found
