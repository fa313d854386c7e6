"""Finitely many tokens: the N tokens of a document, whose limit is softmax attention itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.tokens.base import Tokens
from attnlimit.tokens.score_law import ScoreLaw


class Empirical(Tokens):
    """The measure that puts `weights` (uniform by default) on the rows of `points`.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Empirical([[0.0], [1.0]]).tilted_mean([0.0])
    array([0.5])
    """

    def __init__(self, points: ArrayLike, weights: ArrayLike | None = None) -> None:
        self.locations = checks.real_array(points, "points", ndim=2)
        if self.locations.size == 0:
            raise BadInput(f"points are empty, of shape {self.locations.shape}; give at least one.")
        size, self.dim = self.locations.shape
        if weights is None:
            self.weights = np.full(size, 1 / size)
        else:
            self.weights = checks.mixture_weights(weights, size, "weights")
        with np.errstate(divide="ignore"):
            self._log_weights = np.log(self.weights)

    def cgf(self, t: ArrayLike) -> Array:
        return np.asarray(logsumexp(self._scores(t), axis=-1))

    def tilted_mean(self, t: ArrayLike) -> Array:
        return self._tilted_weights(t) @ self.locations

    def tilted_cov(self, t: ArrayLike) -> Array:
        weights = self._tilted_weights(t)
        centred = self.locations - (weights @ self.locations)[..., None, :]
        return np.swapaxes(centred * weights[..., None], -1, -2) @ centred

    def extreme(self, u: ArrayLike) -> Array:
        scores = self._direction(u) @ self.locations.T
        scores = np.where(self.weights > 0, scores, -np.inf)
        return self.locations[scores.argmax(axis=-1)]

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        return self.locations[rng.choice(len(self.weights), n, p=self.weights)]

    @property
    def transport_dim(self) -> int:
        return 1

    def transport(self, uniforms: Array) -> Array:
        edges = np.cumsum(self.weights)
        index = np.searchsorted(edges / edges[-1], uniforms[:, 0], side="right")
        return self.locations[np.minimum(index, len(edges) - 1)]

    def atoms(self) -> tuple[Array, Array]:
        return self.locations, self.weights

    def reach(self, matrix: Array) -> float:
        present = self.locations[self.weights > 0] - self.mean()
        return float(np.linalg.norm(present @ matrix.T, axis=1).max())

    def score_law(self, t: Array) -> ScoreLaw:
        present = self.weights > 0
        points = self.locations[present]
        return ScoreLaw.build(points @ t, self.weights[present], points, np.eye(self.dim))

    def _scores(self, t: ArrayLike) -> Array:
        return self._tilt(t) @ self.locations.T + self._log_weights

    def _tilted_weights(self, t: ArrayLike) -> Array:
        return np.asarray(softmax(self._scores(t), axis=-1))

    def __repr__(self) -> str:
        return f"Empirical(size={len(self.weights)}, dim={self.dim})"
