"""Measured errors at queries that are not among the keys: averages, and the largest over a ball."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.simulate.engine import line_outputs, prefix_outputs
from attnlimit.theory.limit import limit
from attnlimit.tokens import Gaussian, Tokens

BATCH_TOKENS = 1 << 21
MAX_BATCH = 64
QUERIES_PER_DRAW = 64
LINE_POINTS = 141


def pointwise_errors(
    head: Head,
    tokens: Tokens,
    x: Array | None,
    n: NDArray[np.int64],
    replicates: int,
    seed: np.random.SeedSequence,
) -> tuple[Array, Array]:
    """Squared errors (draws, n) averaged over queries, and errors (draws, n, queries, d_v).

    Queries are the rows of `x`, or fresh ones from the tokens' law in every draw. For symmetric
    tokens each query comes with its opposite, whose error has the same law mirrored: keys of both
    tails then serve, and the noise of the bias that is even in the keys cancels.
    """
    mirrored = tokens.symmetric
    squares, errors = [], []
    for keys, rngs in _draws(tokens, int(n[-1]), replicates, seed):
        if x is None:
            queries = np.stack([tokens.sample(QUERIES_PER_DRAW, rng) for rng in rngs])
        else:
            queries = np.broadcast_to(x, (len(rngs), *x.shape))
        count = queries.shape[1]
        if mirrored:
            queries = np.concatenate([queries, -queries], axis=1)
        error = _outputs(head, queries, keys, n) - limit(head, tokens)(queries)[:, None]
        squares.append((error**2).sum(axis=-1).mean(axis=-1))
        if mirrored:
            error = (error[:, :, :count] - error[:, :, count:]) / 2
        errors.append(error)
    return np.concatenate(squares), np.concatenate(errors)


def participations(
    head: Head,
    tokens: Tokens,
    x: Array | None,
    n: NDArray[np.int64],
    replicates: int,
    seed: np.random.SeedSequence,
) -> Array:
    """Sum of squared weights over the first n keys, (draws, n), averaged over queries."""
    rows = []
    for child in seed.spawn(replicates):
        rng = np.random.default_rng(child)
        keys = tokens.sample(int(n[-1]), rng)
        queries = tokens.sample(QUERIES_PER_DRAW, rng) if x is None else x
        scores = head.tilts(queries) @ keys.T
        squares, sums = (np.logaddexp.accumulate(k * scores, axis=1)[:, n - 1] for k in (2, 1))
        rows.append(np.exp(squares - 2 * sums).mean(axis=0))
    return np.stack(rows)


def line_errors(
    slopes: Array, n: NDArray[np.int64], replicates: int, seed: np.random.SeedSequence
) -> Array:
    """Errors of the output averaged over the law of the queries, d = 1: scores slope x y.

    Keys y and queries x are standard normal. All slopes see the same keys: (draws, n, slopes).
    """
    tokens = Gaussian(dim=1)
    # Out to seven deviations: past the horizon 1 rare queries matter.
    points = np.linspace(-7, 7, LINE_POINTS)
    weights = np.exp(-(points**2) / 2)
    weights /= weights.sum()
    tilts = np.multiply.outer(slopes, points)
    parts = []
    for child in seed.spawn(replicates):
        keys = tokens.sample(int(n[-1]), np.random.default_rng(child))[:, 0]
        parts.append(line_outputs(tilts.ravel(), keys, n).reshape(len(n), *tilts.shape) @ weights)
    return np.stack(parts)


def _outputs(head: Head, queries: Array, keys: torch.Tensor, n: NDArray[np.int64]) -> Array:
    """Outputs over every prefix of the keys: (B, len(n), queries, d_v)."""
    tilts = torch.from_numpy(queries @ head.A.T).float()
    counts = [queries.shape[1]] * len(n)
    means = torch.stack(list(prefix_outputs(tilts, keys, n.tolist(), counts)), dim=1)
    return np.asarray(means.numpy() @ head.V.T)


def _draws(
    tokens: Tokens, size: int, replicates: int, seed: np.random.SeedSequence
) -> Iterator[tuple[torch.Tensor, list[np.random.Generator]]]:
    """Yield batches of keys, with the generators that drew them."""
    generators = [np.random.default_rng(child) for child in seed.spawn(replicates)]
    batch = int(np.clip(BATCH_TOKENS // (size * tokens.dim), 1, MAX_BATCH))
    for start in range(0, replicates, batch):
        rngs = generators[start : start + batch]
        drawn = np.stack([tokens.sample(size, rng) for rng in rngs])
        yield torch.from_numpy(drawn).float(), rngs


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
