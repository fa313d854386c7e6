"""The exact pointwise error, averaged over independent queries drawn as tokens are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.law.gaussian import MAX_SIGMA, gaussian_law
from attnlimit.theory.law.pointwise import pointwise_error
from attnlimit.theory.moments import WhitenedHead
from attnlimit.tokens import Empirical, Gaussian, Product, Tokens
from attnlimit.tokens.gaussian import normal_rule

_QUERIES = 8192
_NUMBERS = 2**20  # memory: fewer queries in high dimensions
_KNOTS = 40
_EXACT_QUERIES = 128
_SLOW_QUERIES = 16


def average_pointwise_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """E|Gamma_n(x) - Gamma(x)|^2 over x ~ tokens, and the error of the average over queries."""
    if isinstance(tokens, Gaussian):
        halves = [_gaussian(WhitenedHead.of(head, tokens), n, seed) for seed in (0, 1)]
        return (halves[0] + halves[1]) / 2, np.abs(halves[0] - halves[1]) / 2
    if isinstance(tokens, Empirical):
        count = len(tokens.weights)
        rows = np.unique(np.linspace(0, count - 1, min(count, 4 * _EXACT_QUERIES)).astype(int))
        share = tokens.weights[rows] / tokens.weights[rows].sum()
        mse = pointwise_error(head, tokens, tokens.locations[rows], n).mse
        average = share @ mse
        spread = np.sqrt(share**2 @ (mse - average) ** 2)
        return average, spread if len(rows) < count else np.zeros(len(n))
    count = _SLOW_QUERIES if isinstance(tokens, Product) else _EXACT_QUERIES
    mse = pointwise_error(head, tokens, tokens.points(count), n).mse
    return mse.mean(axis=0), mse.std(axis=0) / np.sqrt(count)


def _gaussian(white: WhitenedHead, n: NDArray[np.int64], seed: int) -> Array:
    """f |V S^1/2 e|^2 + p (tr VSV' - |V S^1/2 e|^2) over queries, f and p splines in sigma."""
    count = int(np.clip(2 ** int(np.log2(_NUMBERS / len(white.B))), 512, _QUERIES))
    tilts = white.tilts(normal_rule(len(white.B), count, seed))
    sigma = np.linalg.norm(tilts, axis=1)
    gain = ((tilts @ white.metric) * tilts).sum(axis=1) / np.maximum(sigma, 1e-300) ** 2
    total = float(np.trace(white.metric))
    top = min(float(sigma.max()), MAX_SIGMA)
    if top == 0:
        return total / n.astype(np.float64)
    knots = np.linspace(0, top, _KNOTS)
    law = gaussian_law(knots[:, None], n)
    at = np.minimum(sigma, top)
    along = np.exp(CubicSpline(knots, np.log(law.mse))(at))
    across = np.exp(CubicSpline(knots, np.log(law.participation))(at))
    return np.asarray((gain[:, None] * along + (total - gain)[:, None] * across).mean(axis=0))
