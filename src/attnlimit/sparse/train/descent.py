"""Train attention on bags: two gradient steps for the query, then a convex readout.

Stages: (1) one step on (w, b) from zero; (2) one step on q, on the same bags; (3) freeze q and
pool every bag of the second set with it; (4) fit (w, b) on the pooled features to the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array, one_of
from attnlimit.errors import BadInput
from attnlimit.sparse.law.readout import LossLike
from attnlimit.sparse.losses import as_loss
from attnlimit.sparse.task import MODELS
from attnlimit.sparse.train.fit import LinearReadout, fit_readout

Blocks = Callable[[], Iterable[tuple[Array, NDArray[Any]]]]
"""Bags in blocks (X of shape (n, L, d), y), the same ones at every call: nothing is kept."""


def as_blocks(X: Array, y: Array) -> Blocks:
    """Wrap bags that are in memory."""
    return lambda: iter([(X, y)])


def pool(X: Array, model: str, query: Array | None = None, sharpness: float = 1.0) -> Array:
    """Features of bags: attention-pooled by `query`, mean-pooled, or all tokens side by side."""
    one_of(model, MODELS, "model")
    if model == "pooled":
        return X.mean(axis=1)
    if model == "vectorized":
        return X.reshape(len(X), -1)
    if query is None:
        raise BadInput("attention pooling needs a query.")
    p = softmax(sharpness * (X @ query), axis=1)
    return (p[:, None, :] @ X)[:, 0, :]


def pooled_bags(
    blocks: Iterable[tuple[Array, NDArray[Any]]],
    model: str,
    query: Array | None = None,
    sharpness: float = 1.0,
) -> tuple[Array, Array]:
    """Features and labels of all bags, pooled block by block."""
    parts = [(pool(X, model, query, sharpness), y) for X, y in blocks]
    features, labels = zip(*parts, strict=True)
    return np.concatenate(features), np.concatenate(labels).astype(float)


@dataclass(frozen=True, eq=False)
class QuerySteps:
    """The query after two gradient steps, and the readout of the first."""

    query: Array
    weights: Array
    bias: float


def query_steps(
    blocks: Blocks,
    loss: LossLike = "logistic",
    lr_w: float = 1.0,
    lr_b: float = 1.0,
    lr_q: float = 1.0,
    beta: float = 1.0,
) -> QuerySteps:
    """Take two gradient steps from zero, the first on (w, b), the second on q."""
    chosen = as_loss(loss)
    pull = chosen.initial_pull
    sums = [(len(y), float(y.sum()), y @ X.mean(axis=1)) for X, y in blocks()]
    if not sums:
        raise BadInput("there are no bags to train on.")
    count, labels, total = (sum(parts) for parts in zip(*sums, strict=True))
    weights = lr_w * pull * total / count
    bias = lr_b * pull * labels / count
    query = np.zeros_like(weights)
    for X, y in blocks():
        scores = X @ weights
        slope = chosen.slope(scores.mean(axis=1) + bias, y.astype(float))
        contrast = scores - scores.mean(axis=1, keepdims=True)
        pull_on_tokens = slope[:, None] * contrast / X.shape[1]
        query += pull_on_tokens.reshape(-1) @ X.reshape(-1, X.shape[2])
    return QuerySteps(-lr_q * beta / count * query, weights, bias)


def misclassified(predict: Callable[[Array], Array], blocks: Blocks) -> float:
    """Fraction of bags whose label is not the sign of their prediction."""
    return float(np.mean(np.concatenate([y * predict(X) <= 0 for X, y in blocks()])))


@dataclass(frozen=True, eq=False)
class TrainedAttention:
    """Attention pooling with a trained query and readout."""

    query: Array
    beta: float
    readout: LinearReadout

    def __call__(self, X: Array) -> Array:
        """Predictions for bags X of shape (n, L, d); their sign is the class."""
        return self.readout(pool(X, "attention", self.query, self.beta))

    def error(self, blocks: Blocks) -> float:
        """Fraction of bags that are misclassified."""
        return misclassified(self, blocks)


def train_attention(
    query_blocks: Blocks,
    readout_blocks: Blocks | None = None,
    *,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    lr_w: float = 1.0,
    lr_b: float = 1.0,
    lr_q: float = 1.0,
    beta: float = 1.0,
) -> TrainedAttention:
    """Run the four stages; without `readout_blocks`, both parts use the same bags.

    With split data the query is independent of the readout's bags, as the theory assumes.
    """
    query = query_steps(query_blocks, loss, lr_w, lr_b, lr_q, beta).query
    features, labels = pooled_bags((readout_blocks or query_blocks)(), "attention", query, beta)
    return TrainedAttention(query, beta, fit_readout(features, labels, loss, ridge))
