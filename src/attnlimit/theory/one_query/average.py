"""The exact pointwise error, averaged over independent queries drawn as tokens are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.one_query.gaussian import check_score_std, gaussian_law
from attnlimit.theory.one_query.pointwise import pointwise_error
from attnlimit.tokens import IndependentForm, Tokens
from attnlimit.tokens.gaussian import normal_rule

_QUERIES = 8192
_NUMBERS = 2**20  # memory: fewer queries in high dimensions
_KNOTS = 129
_EXACT_QUERIES = 128
_SLOW_QUERIES = 16


def average_pointwise_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """E|Gamma_n(x) - Gamma(x)|^2 over x ~ tokens, and the error of the average over queries."""
    if tokens.is_gaussian:
        (first, second), gap = _gaussian_halves(WhitenedHead.of(head, tokens), n)
        average = (first + second) / 2
        return average, np.hypot(np.abs(first - second) / 2, gap * average)
    return average_over_queries(tokens, lambda x: pointwise_error(head, tokens, x, n).mse)


def average_over_queries(tokens: Tokens, at: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Average of at(queries), (m, ...), over queries drawn as tokens are, and its error.

    All of few tokens, evenly spaced ones of many, quasi-random ones of a measure.
    """
    atoms = tokens.atoms()
    slow = isinstance(tokens.form, IndependentForm)
    points, weights = tokens.rule(_SLOW_QUERIES if slow else _EXACT_QUERIES)
    count = len(weights)
    most = count if atoms is None else min(count, 4 * _EXACT_QUERIES)
    rows = np.unique(np.linspace(0, count - 1, most).astype(int))
    share = weights[rows] / weights[rows].sum()
    values = at(points[rows])
    average = share @ values
    spread = np.sqrt(share**2 @ (values - average) ** 2)
    return average, spread if atoms is None or most < count else np.zeros_like(average)


def _gaussian_halves(white: WhitenedHead, n: NDArray[np.int64]) -> tuple[list[Array], float]:
    """f |V S^1/2 e|^2 + p (tr VSV' - |V S^1/2 e|^2) over two sets of queries.

    f and p are splines in sigma, whose relative error is returned too.
    """
    count = int(np.clip(2 ** int(np.log2(_NUMBERS / len(white.B))), 512, _QUERIES))
    tilts = np.stack([white.tilts(normal_rule(len(white.B), count, seed)) for seed in (0, 1)])
    sigma = np.linalg.norm(tilts, axis=2)
    gain = ((tilts @ white.metric) * tilts).sum(axis=2) / np.maximum(sigma, 1e-150) ** 2
    total = float(np.trace(white.metric))
    top = float(sigma.max())
    check_score_std(top)
    if top == 0:
        return [total / n.astype(np.float64)] * 2, 0.0
    # Even in asinh(sigma/2): dense where f and p change over one unit of sigma, sparse above.
    knots = 2 * np.sinh(np.linspace(0, np.arcsinh(top / 2), _KNOTS))
    law = gaussian_law(knots[:, None], n)
    logs = np.log(np.concatenate([law.mse, law.participation], axis=1))
    coarse = CubicSpline(knots[::2], logs[::2])(knots[1::2])
    along, across = np.split(np.exp(CubicSpline(knots, logs)(sigma)), 2, axis=2)
    means = (gain[..., None] * along + (total - gain)[..., None] * across).mean(axis=1)
    return list(means), float(np.abs(np.expm1(coarse - logs[1::2])).max())
