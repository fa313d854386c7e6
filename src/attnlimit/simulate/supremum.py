"""Largest error over a ball of queries, maximised from many starts in each draw."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.tokens import Tokens

SCREENED = 256
CLIMBERS = 16
STEPS = 40

Objective = Callable[[Array], tuple[Array, Array]]


def supremum_errors(
    head: Head,
    tokens: Tokens,
    radius: float,
    n: NDArray[np.int64],
    replicates: int,
    seed: np.random.SeedSequence,
) -> tuple[Array, Array]:
    """Largest |Gamma_n(x) - Gamma(x)| over |x| <= radius: values and shortfalls, (draws, n).

    The shortfall is what the second half of the starts added to the first: an estimate of what
    still more starts would add.
    """
    values = np.empty((replicates, len(n)))
    shortfalls = np.empty_like(values)
    for row, child in enumerate(seed.spawn(replicates)):
        rng = np.random.default_rng(child)
        keys = tokens.sample(int(n[-1]), rng)
        starts = _ball(rng, SCREENED, head.query_dim, radius)
        for column, size in enumerate(n):
            objective = _squared_error(head, tokens, keys[:size])
            first, second = np.sqrt(_climb(objective, starts, radius))
            values[row, column] = max(first, second)
            shortfalls[row, column] = max(first, second) - first
    return values, shortfalls


def _ball(rng: np.random.Generator, count: int, dim: int, radius: float) -> Array:
    """Starts: half of them inside, uniform in radius, and half on the sphere, where errors grow."""
    directions = rng.standard_normal((count, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.where(np.arange(count) % 2 == 0, 1.0, rng.random(count))
    return radius * lengths[:, None] * directions


def _squared_error(head: Head, tokens: Tokens, keys: Array) -> Objective:
    """|Gamma_n(x) - Gamma(x)|^2 and its gradient A' (Cov_n(t) - K''(t)) V' e, times two."""

    def objective(x: Array) -> tuple[Array, Array]:
        tilts = x @ head.A.T
        weights = softmax(tilts @ keys.T, axis=1)
        mean = weights @ keys
        error = (mean - tokens.tilted_mean(tilts)) @ head.V.T
        along = error @ head.V
        pull = (weights * (along @ keys.T)) @ keys - mean * (mean * along).sum(1, keepdims=True)
        limit = np.einsum("qij,qj->qi", tokens.tilted_cov(tilts), along)
        return (error**2).sum(axis=1), 2 * (pull - limit) @ head.A

    return objective


def _climb(objective: Objective, starts: Array, radius: float) -> Array:
    """Best values reached by projected gradient ascent from the best of each half of the starts."""
    value, gradient = objective(starts)
    halves = np.split(np.arange(len(starts)), 2)
    best = np.concatenate([half[np.argsort(value[half])[-CLIMBERS // 2 :]] for half in halves])
    x, value, gradient = starts[best], value[best], gradient[best]
    step = np.full(len(x), 0.25 * radius)
    for _ in range(STEPS):
        lengths = np.linalg.norm(gradient, axis=1)
        direction = gradient / np.maximum(lengths, 1e-300)[:, None]
        trial = x + step[:, None] * direction
        norms = np.linalg.norm(trial, axis=1)
        trial *= np.minimum(1, radius / np.maximum(norms, 1e-300))[:, None]
        trial_value, trial_gradient = objective(trial)
        better = trial_value > value
        x = np.where(better[:, None], trial, x)
        gradient = np.where(better[:, None], trial_gradient, gradient)
        value = np.where(better, trial_value, value)
        step *= np.where(better, 1.3, 0.4)
        if step.max() < 1e-5 * radius:
            break
    return value.reshape(2, -1).max(axis=1)
