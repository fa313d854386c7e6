"""Gaussian tokens N(m, S), rank-deficient covariances included."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, UnboundedSupport
from attnlimit.tokens.base import GaussianForm, Tail, Tokens, symmetric_root
from attnlimit.tokens.score_law import ScoreLaw, standard_normal_grid

MAX_SCORE_STD = 1000.0
"""Standard deviation of a query's scores up to which the exact law is computed."""


@lru_cache(maxsize=16)
def normal_rule(dim: int, count: int, seed: int) -> Array:
    """`count` quasi-random standard normal points of R^dim; kept, since every sweep asks again."""
    points = Gaussian(dim=dim).points(count, seed)
    points.setflags(write=False)
    return points


class Gaussian(Tokens):
    """Normal tokens: `Gaussian(cov=S)`, or `Gaussian(dim=50, variance=0.1)` for a multiple of I.

    K(t) = <m, t> + t'St/2, gradient m + St, Hessian S.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Gaussian(dim=2, variance=0.5).tilted_mean([2.0, 0.0])
    array([1., 0.])
    """

    def __init__(
        self,
        cov: ArrayLike | None = None,
        *,
        mean: ArrayLike | None = None,
        dim: int | None = None,
        variance: float = 1.0,
    ) -> None:
        if (cov is None) == (dim is None):
            raise BadInput("give either cov, a (d, d) matrix, or dim (with variance), not both.")
        if cov is None:
            scale = checks.not_negative(variance, "variance")
            matrix = scale * np.eye(checks.count(dim, "dim"))
        else:
            matrix = _covariance_matrix(cov, "cov")
        self.dim = len(matrix)
        self._cov = matrix
        self._mean = np.zeros(self.dim)
        if mean is not None:
            self._mean = checks.real_array(mean, "mean", ndim=1)
            if len(self._mean) != self.dim:
                raise BadInput(f"mean must have {self.dim} entries, got {len(self._mean)}.")
        self._sqrt = symmetric_root(matrix)

    def mean(self) -> Array:
        return self._mean.copy()

    def cov(self) -> Array:
        return self._cov.copy()

    def sqrt_cov(self) -> Array:
        return self._sqrt.copy()

    @property
    def form(self) -> GaussianForm:
        return GaussianForm()

    @property
    def tail(self) -> Tail:
        return Tail("sub-Gaussian", roots=(self._sqrt,))

    @property
    def symmetric(self) -> bool:
        return not self._mean.any()

    def cgf(self, t: ArrayLike) -> Array:
        t = self._tilt(t)
        return t @ self._mean + ((t @ self._sqrt) ** 2).sum(axis=-1) / 2

    def tilted_mean(self, t: ArrayLike) -> Array:
        return self._mean + self._tilt(t) @ self._cov

    def tilted_cov(self, t: ArrayLike) -> Array:
        t = self._tilt(t)
        return np.broadcast_to(self._cov, (*t.shape[:-1], self.dim, self.dim)).copy()

    def extreme(self, u: ArrayLike) -> Array:
        u = self._direction(u)
        if (np.linalg.norm(u @ self._sqrt, axis=-1) > 0).any():
            raise UnboundedSupport(
                "Gaussian tokens have no furthest point along u; use tokens of bounded support."
            )
        return np.broadcast_to(self._mean, u.shape).copy()

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        return self._mean + rng.standard_normal((n, self.dim)) @ self._sqrt

    def transport(self, uniforms: Array) -> Array:
        return self._mean + ndtri(uniforms) @ self._sqrt

    def score_law(self, t: Array) -> ScoreLaw:
        whitened = self._sqrt @ t
        score_std = float(np.linalg.norm(whitened))
        if score_std > MAX_SCORE_STD:
            raise BadInput(
                f"a query's scores have standard deviation {score_std:.3g}, above "
                f"{MAX_SCORE_STD:g}: attention is a hard maximum there, use hardmax_error."
            )
        g, weight = standard_normal_grid(score_std)
        along = self._sqrt @ whitened / score_std if score_std > 0 else np.zeros(self.dim)
        return ScoreLaw.build(
            score=float(t @ self._mean) + score_std * g,
            weight=weight,
            coefficients=np.stack([np.ones_like(g), g if score_std > 0 else 0 * g], axis=1),
            basis=np.stack([self._mean, along]),
            spread=np.ones((len(g), 1)),
            spread_cov=(self._cov - np.outer(along, along))[None],
        )

    def __repr__(self) -> str:
        return f"Gaussian(dim={self.dim}, trace={np.trace(self._cov):.4g})"


def _covariance_matrix(value: ArrayLike, name: str) -> Array:
    """Return a symmetric positive semi-definite matrix, rank-deficient ones included."""
    matrix = checks.real_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise BadInput(f"{name} must be square, but its shape is {matrix.shape}.")
    if matrix.size == 0:
        raise BadInput(f"{name} is empty; tokens need at least one dimension.")
    size = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-8 * size:
        raise BadInput(f"{name} must be symmetric; symmetrise it with (C + C.T) / 2.")
    matrix = (matrix + matrix.T) / 2
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest < -1e-8 * size:
        raise BadInput(
            f"{name} must be positive semi-definite, but its smallest eigenvalue is {smallest:.3g}."
        )
    return matrix
