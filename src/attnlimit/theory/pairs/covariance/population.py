"""The error of the outputs' covariance for finitely many tokens, or a stand-in for a measure.

As for Gaussian tokens: the bias is exact, query by query; the fluctuation is (1/n) of one query's
own variance, from the exact fourth moment of its output, plus how two queries vary together, from
the response to a shared key, times what the mean's exact pair term has over its own response.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.law.pointwise import integrate_score_law
from attnlimit.theory.law.quadrature import PAIRS, Sweep, alpha_grid
from attnlimit.theory.moments import mean_covariance
from attnlimit.theory.pairs.covariance.error import CovarianceError
from attnlimit.theory.pairs.covariance.gaussian import common_part, missed_factor
from attnlimit.theory.pairs.finite.mean import population_mean_error
from attnlimit.theory.pairs.finite.tokens import Population, query_rows
from attnlimit.theory.pairs.mean import stand_ins
from attnlimit.tokens import Empirical, ScoreLaw, Tokens

_QUERIES = 192
_FOURTH_QUERIES = 48
_MISSING, _MISSING_OF_FEW, _FEW = 0.5, 1.0, 100
"""How much of the error a first-order response can miss, also with few tokens; more where the mean
is far from its own central limit (docs/theory/moments.md)."""


def population_covariance_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64]
) -> CovarianceError:
    """E|Cov_n - Cov|_F^2 for tokens drawn from a population with replacement."""
    found = [_of_population(head, points, weights, n) for points, weights in stand_ins(tokens)]
    parts = [(f.mse, f.bias_square, f.fluctuation, f.numerical_error) for f in found]
    mse, bias_square, fluctuation, inner = np.mean(parts, axis=0)
    error = np.hypot(inner, np.std([f.mse for f in found], axis=0))
    return CovarianceError(n, mse, bias_square, fluctuation, error)


def _of_population(
    head: Head, points: Array, weights: Array, n: NDArray[np.int64]
) -> CovarianceError:
    values, scores = points @ head.V.T, head.tilts(points) @ points.T
    queries = Population.of(scores, values, weights, _QUERIES)
    share = queries.share
    mean = population_mean_error(scores, values, n, weights)
    means, moments = _moments(queries, n)
    second = np.tensordot(share, moments, axes=1)  # E (Gamma_n - m)(Gamma_n - m)'
    centred = queries.outputs - share @ queries.outputs
    spread = values - weights @ values
    gram = (weights * spread.T) @ spread
    # Queries are keys too: the trace of their second moment is known with that, its shape without.
    plain = np.trace(second, axis1=1, axis2=2)
    own = n * mean.own_share / np.maximum(plain, 1e-300)
    # The mean's own spread, which Cov_n leaves out, has the shape that it has for large n.
    shape = mean_covariance(head, Empirical(points, weights))
    settled = mean.mse / max(float(np.trace(shape)), 1e-300)
    bias = own[:, None, None] * second - (share * centred.T) @ centred
    bias -= settled[:, None, None] * shape
    alone = _fourth_moment(queries, n) - (second**2).sum(axis=(1, 2))
    alone -= common_part(gram, second, mean.mse)
    together = np.array([_together(queries, means[:, k], int(c)) for k, c in enumerate(n)])
    fluctuation = np.maximum(alone, 0) / n + missed_factor(mean, together[:, 1]) * together[:, 0]
    bias_square = (bias**2).sum(axis=(1, 2))
    mse = bias_square + fluctuation
    unsure = np.abs(own - 1) * plain
    missing = np.where(n < _FEW, _MISSING_OF_FEW, _MISSING) * np.maximum(n * settled, 1) * mse
    error = mean.numerical_error / mean.mse * fluctuation + missing
    error += 2 * np.sqrt(bias_square) * unsure + unsure**2
    return CovarianceError(n, mse, bias_square, fluctuation, error)


def _moments(queries: Population, n: NDArray[np.int64]) -> tuple[Array, Array]:
    """E Gamma_n - m (R, len n, d_v) and E (Gamma_n - m)(Gamma_n - m)' for each query, exact."""
    size = queries.values.shape[1]
    centre = queries.share @ queries.outputs
    means, moments = [], []
    for scores, output in zip(queries.scores, queries.outputs, strict=True):
        law = ScoreLaw.build(scores, queries.weights, queries.values, np.eye(size))
        _, bias, _, spread = integrate_score_law(law, np.eye(size), output, n, covariance=True)
        mean = bias + output - centre
        means.append(mean)
        moments.append(np.asarray(spread) + mean[:, :, None] * mean[:, None, :])
    return np.array(means), np.array(moments)


def _fourth_moment(queries: Population, n: NDArray[np.int64]) -> Array:
    """E |Gamma_n - m|^4 averaged over some queries: how many distinct keys meet in it."""
    chosen = query_rows(len(queries.rows), _FOURTH_QUERIES)
    share = queries.share[chosen] / queries.share[chosen].sum()
    centred = queries.values - queries.share @ queries.outputs
    size = centred.shape[1]
    energy = (centred**2).sum(axis=1)
    products = (centred[:, :, None] * centred[:, None, :]).reshape(len(centred), -1)
    total = np.zeros(len(n))
    for portion, scores in zip(share, queries.scores[chosen], strict=True):
        sweep = Sweep.over(scores, queries.weights, alpha_grid(scores, queries.weights, n, PAIRS))
        a = sweep.moment(1, centred)
        b = sweep.moment(2, products).reshape(-1, size, size)
        c = sweep.moment(3, energy[:, None] * centred)
        d = sweep.moment(4, energy**2)
        trace = np.trace(b, axis1=1, axis2=2)
        length = (a**2).sum(axis=1)
        bent = ((b @ a[:, :, None])[..., 0] * a).sum(axis=1)
        meetings = [
            d,
            4 * (c * a).sum(axis=1) + 2 * (b**2).sum(axis=(1, 2)) + trace**2,
            2 * trace * length + 4 * bent,
            length**2,
        ]
        for distinct, meeting in enumerate(meetings, start=1):
            weights = np.array([sweep.meeting(float(count), distinct) for count in n])
            total += portion / 6 * (weights @ meeting)
    return total


def _together(queries: Population, means: Array, n: int) -> tuple[float, float]:
    """n E|response|^2 and its cross term with the token as a query: of the covariance, the mean.

    A key known to be there moves each query by its share of V y - Gamma.
    """
    rows, share, values, outputs = queries.rows, queries.share, queries.values, queries.outputs
    pull = share[:, None] * queries.key_share(n)
    centred = means - share @ means
    moved = pull.sum(axis=0)[:, None] * values - pull.T @ outputs  # (N, d_v)
    tilted = values[:, :, None] * (pull.T @ centred)[:, None, :]
    products = (outputs[:, :, None] * centred[:, None, :]).reshape(len(rows), -1)
    tilted -= (pull.T @ products).reshape(tilted.shape)
    response = tilted + np.swapaxes(tilted, 1, 2)
    response -= np.tensordot(queries.weights, response, axes=1)
    moved -= queries.weights @ moved
    own = centred[:, :, None] * centred[:, None, :]
    own -= np.tensordot(share, own, axes=1)
    covariance = n * float(queries.weights @ (response**2).sum(axis=(1, 2)))
    covariance += 2 * float(share @ (response[rows] * own).sum(axis=(1, 2)))
    mean = n * float(queries.weights @ (moved**2).sum(axis=1))
    mean += 2 * float(share @ (moved[rows] * centred).sum(axis=1))
    return max(covariance, 0.0), mean
