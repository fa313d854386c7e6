"""What are measurements compared with? The exact infinite-token limits, never a big sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.limit import limit
from attnlimit.tokens import GaussianForm, Tokens

POINTS = 1 << 14
SCRAMBLES = 8

Moment = Callable[[Array], Array]
"""A function of outputs (..., d_v) with values (..., k)."""


@dataclass(frozen=True)
class Reference:
    """Mean and covariance of the limit output over queries drawn like the tokens.

    `mean_error` and `covariance_error` bound what quadrature leaves (norm and Frobenius norm);
    both are zero where a closed form exists.
    """

    mean: Array
    covariance: Array
    mean_error: float
    covariance_error: float


def limit_reference(head: Head, tokens: Tokens) -> Reference:
    """Mean and covariance of the limit output.

    Gaussian tokens N(m, S): Gamma(x) = V (m + S A x), of mean V (m + S A m) and covariance
    V S A S A' S V'. Other tokens: the limit map is exact, and its average over queries is a
    quasi-Monte Carlo sum over scrambled Sobol points, whose scrambles give the error. The mean is
    zero for symmetric tokens.
    """
    if isinstance(tokens.form, GaussianForm):
        mean, cov = tokens.mean(), tokens.cov()
        linear = head.V @ cov @ head.A
        centre = head.V @ (mean + cov @ head.A @ mean)
        return Reference(centre, linear @ cov @ linear.T, 0.0, 0.0)
    means, seconds = [], []
    for seed in range(SCRAMBLES):
        outputs = limit(head, tokens)(tokens.points(POINTS, seed))
        means.append(outputs.mean(axis=0))
        seconds.append(outputs.T @ outputs / len(outputs))
    mean = np.zeros(head.value_dim) if tokens.symmetric else np.mean(means, axis=0)
    covariances = [second - np.outer(mean, mean) for second in seconds]
    mean_error = 0.0 if tokens.symmetric else _scatter(means)
    return Reference(mean, np.mean(covariances, axis=0), mean_error, _scatter(covariances))


def moment_reference(head: Head, tokens: Tokens, moment: Moment) -> tuple[Array, float]:
    """Expectation of `moment` of the limit output, and the error of its quadrature."""
    values = []
    for seed in range(SCRAMBLES):
        outputs = limit(head, tokens)(tokens.points(POINTS, seed))
        values.append(np.asarray(moment(outputs), dtype=np.float64).mean(axis=0))
    return np.mean(values, axis=0), _scatter(values)


def _scatter(estimates: list[Array]) -> float:
    """Two standard errors of the average of independent scrambles, as a norm."""
    deviations = np.std(np.asarray(estimates), axis=0, ddof=1)
    return float(2 * np.linalg.norm(deviations) / np.sqrt(len(estimates)))
