"""What every token measure can say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import qmc

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.tokens.score_law import ScoreLaw


class Tokens(ABC):
    """A probability measure on R^d that tokens are drawn from, independently.

    With K(t) = log E exp<t, y> its cumulant generating function (`cgf`), `tilted_mean` is its
    gradient and `tilted_cov` its Hessian: mean and covariance of the measure reweighted by
    exp<t, y>. All three take a `t` with any leading batch axes.
    """

    dim: int

    @abstractmethod
    def mean(self) -> Array:
        """Mean, of shape (d,)."""

    @abstractmethod
    def cov(self) -> Array:
        """Covariance, of shape (d, d)."""

    @abstractmethod
    def cgf(self, t: ArrayLike) -> Array:
        """K(t) = log E exp<t, y>; NoLimitError where it is infinite."""

    @abstractmethod
    def tilted_mean(self, t: ArrayLike) -> Array:
        """Gradient of the CGF at t: the infinite-token limit of attention with scores <t, y>."""

    @abstractmethod
    def tilted_cov(self, t: ArrayLike) -> Array:
        """Hessian of the CGF at t."""

    @abstractmethod
    def extreme(self, u: ArrayLike) -> Array:
        """The point of the support furthest along u; UnboundedSupport if there is none."""

    @abstractmethod
    def _transport(self, uniforms: Array) -> Array:
        """Map points of the unit cube, one row each, to tokens."""

    @property
    def _transport_dim(self) -> int:
        """How many uniform numbers make one token."""
        return self.dim

    def score_law(self, t: Array) -> ScoreLaw | None:
        """Law of the score <t, y> with the token's moments given it; None if it is not known."""
        return None

    def sample(self, n: int, rng: np.random.Generator | int | None = None) -> Array:
        """Draw `n` tokens, of shape (n, d)."""
        size = checks.count(n, "n")
        generator = np.random.default_rng(rng)
        return self._transport(generator.random((size, self._transport_dim)))

    def points(self, count: int, seed: int = 0) -> Array:
        """`count` quasi-random tokens (scrambled Sobol): the same ones every time."""
        sequence = qmc.Sobol(self._transport_dim, scramble=True, rng=np.random.default_rng(seed))
        uniforms = sequence.random_base2(int(np.ceil(np.log2(max(count, 2)))))[:count]
        return self._transport(np.clip(uniforms, 1e-12, 1 - 1e-12))

    def _tilt(self, t: ArrayLike) -> Array:
        return checks.vectors(t, self.dim, "t")

    def _direction(self, u: ArrayLike) -> Array:
        direction = checks.vectors(u, self.dim, "u")
        if not (np.linalg.norm(direction, axis=-1) > 0).all():
            raise BadInput("u must not be the zero vector: it is the direction to go furthest in.")
        return direction
