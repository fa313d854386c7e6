"""What the law of squares gives: the error of the outputs' covariance, from its parts.

    E|Cov_n - Cov|_F^2 = |E Cov_n - Cov|_F^2 + (1/n) (one query's own) + (1 - 1/n) (two queries'),

less what the spread of m_n adds to the squares of both (docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array

_NOT_APART = 0.01  # how far the square of the mean and the covariance may vary together

Estimate = tuple[Array, Array]  # for each n, with its error


@dataclass(frozen=True, eq=False)
class CovarianceError:
    """E|Cov_n - Cov|_F^2 for each n, its two parts, and the spread of the token rule."""

    n: NDArray[np.int64]
    mse: Array
    bias_square: Array
    fluctuation: Array
    numerical_error: Array


def squared_bias(bias: Array, unsure: Array) -> Estimate:
    """|E Cov_n - Cov|_F^2 from the bias (len n, d_v, d_v), known up to this norm (len n,)."""
    square = (bias**2).sum(axis=(1, 2))
    return square, 2 * np.sqrt(square) * unsure + unsure**2


def two_queries(
    n: NDArray[np.int64], pair: Estimate, seen: Estimate, common: Estimate, gram: Array
) -> Estimate:
    """How two outer products vary together in Cov_n: `pair` over the same keys, `seen` as keys.

    `common` is E|m_n - m|^2, shaped like `gram`.
    """
    error = np.hypot(pair[1], seen[1])
    # The square of m_n - m varies too, and Cov_n leaves it out: normal, and apart from Cov_n.
    left_out = mean_energy(common[0], gram)
    shared = np.hypot(2 * common[1] / common[0], _NOT_APART + 1 / n)
    together = (1 - 1 / n) * (pair[0] + seen[0]) - left_out
    return together, np.hypot(error, shared * left_out)


def summed(
    n: NDArray[np.int64], bias: Estimate, fluctuation: Array, error: Array
) -> CovarianceError:
    """Both parts together; what the fluctuation has below zero counts as error."""
    kept = np.maximum(fluctuation, 0.0)
    total = np.hypot(error, bias[1]) + kept - fluctuation
    return CovarianceError(n, bias[0] + kept, bias[0], kept, total)


def weighed(found: list[CovarianceError]) -> CovarianceError:
    """Average by the inverse squares of the errors, for each n; its error is the smaller one."""
    errors = np.array([f.numerical_error for f in found])
    weight = (errors.min(axis=0) / np.maximum(errors, 1e-300)) ** 2
    weight /= weight.sum(axis=0)
    parts = [(f.mse, f.bias_square, f.fluctuation) for f in found]
    mse, bias_square, fluctuation = (np.array(parts) * weight[:, None]).sum(axis=0)
    return CovarianceError(found[0].n, mse, bias_square, fluctuation, errors.min(axis=0))


def mean_energy(mse: Array, gram: Array) -> Array:
    """What (m_n - m)(m_n - m)' varies by for each n, if m_n is normal: (tr D)^2 + tr D^2."""
    return np.asarray(mse**2 + (mean_square(mse, gram) ** 2).sum(axis=(1, 2)))


def mean_square(mse: Array, gram: Array) -> Array:
    """E (m_n - m)(m_n - m)' for each n, taken to be shaped like `gram`, the values' covariance."""
    share = mse / max(float(np.trace(gram)), 1e-300)
    return np.asarray(share[:, None, None] * gram)
