"""How far is the output over n drawn keys from where it tends, for scores of any sharpness?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.tokens import Gaussian, Sphere, Tokens


@dataclass(frozen=True)
class Along:
    """Keys of a law that has no direction: scores, and the mean square of what is across."""

    query: Array
    scores: Array
    across: Array

    def square(self, sharpness: float, size: int, scale: float, target: Array) -> float:
        """Squared error of the output, averaged over the directions across the query."""
        scores = self.scores[:size]
        weights = _weights(sharpness, scores)
        miss = weights @ scores / scale - target @ self.query
        return float(miss**2 + weights**2 @ self.across[:size] / scale**2)


@dataclass(frozen=True)
class Whole:
    """Keys of any other law."""

    scores: Array
    keys: Array

    def square(self, sharpness: float, size: int, scale: float, target: Array) -> float:
        """Squared error of the output."""
        scores, keys = self.scores[:size], self.keys[:size]
        hard = not np.isfinite(sharpness)
        output = keys[scores.argmax()] if hard else _weights(sharpness, scores) @ keys
        miss = output / scale - target
        return float(miss @ miss)


def drawn_keys(tokens: Tokens, query: Array, count: int, rng: np.random.Generator) -> Along | Whole:
    """Draw keys for a query of length one; keys are values."""
    dim = tokens.dim
    if isinstance(tokens, Gaussian):
        return Along(query, rng.standard_normal(count), np.full(count, dim - 1.0))
    if isinstance(tokens, Sphere):
        scores = 2 * rng.beta((dim - 1) / 2, (dim - 1) / 2, count) - 1
        return Along(query, scores, 1 - scores**2)
    keys = tokens.sample(count, rng)
    return Whole(keys @ query, keys)


def _weights(sharpness: float, scores: Array) -> Array:
    if not np.isfinite(sharpness):
        return (np.arange(len(scores)) == scores.argmax()).astype(float)
    weights = np.exp(sharpness * (scores - scores.max()))
    return np.asarray(weights / weights.sum())
