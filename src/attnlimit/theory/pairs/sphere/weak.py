"""The error of the outputs' covariance on the sphere where attention is weak: the delta method.

E|psi_S|^2 / n, while quasi-random tokens stand for the sphere as queries see it; times what finite
n adds for Gaussian tokens of the same covariance, whose weak limit is exact at every n.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.errors import NotConverged
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead, check_reach, quasi_covariance_influence
from attnlimit.theory.pairs.covariance.error import CovarianceError
from attnlimit.theory.pairs.covariance.weak import WeakError
from attnlimit.tokens import Gaussian, Sphere

_TOKENS = 1024
_REACH = 4096
_FAR_FROM_WEAK = 3.0  # variance of the scores past which the weak limit says nothing
_UNSURE = 0.5  # of what finite n adds


def weak_sphere_error(head: Head, tokens: Sphere, n: NDArray[np.int64]) -> CovarianceError | None:
    """The error for each n; nothing where attention is not weak."""
    alike = WhitenedHead.of(head, Gaussian(cov=tokens.cov()))
    if float(np.trace(alike.tilt_cov)) > _FAR_FROM_WEAK:
        return None
    points, rule = tokens.points(_TOKENS, 6), tokens.points(_REACH, 0)
    try:
        check_reach(tokens, head.tilts(points), rule, np.full(len(rule), 1 / len(rule)))
    except NotConverged:
        return None
    # Products of different rules of queries are free of the rules' own noise.
    rules = [quasi_covariance_influence(head, tokens, points, seed) for seed in range(3)]
    energy = np.mean([(rules[k] * rules[k - 1]).sum(axis=(1, 2)) for k in range(3)], axis=0)
    first_order = max(float(energy.mean()), 0.0)
    spread = float(energy.std() / np.sqrt(len(points)))
    if not first_order > 0:
        nothing = np.zeros(len(n))
        return CovarianceError(n, nothing, nothing, nothing, nothing)
    limit = WeakError.of(alike, n)
    excess = np.maximum(n * limit.mse / limit.first_order - 1, 0.0)
    mse = first_order * (1 + excess) / n
    bias_square = mse * limit.bias_square / limit.mse
    error = mse * np.hypot(spread / first_order, _UNSURE * excess / (1 + excess))
    return CovarianceError(n, mse, bias_square, mse - bias_square, error)
