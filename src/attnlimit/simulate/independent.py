"""Measured errors of attention at queries that are not among the keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

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
