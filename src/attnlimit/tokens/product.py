"""Cube, signs and Laplace tokens, of independent symmetric coordinates, and Student tokens.

Each class of independent coordinates gives the CGF of one coordinate and its two derivatives, for
complex arguments too: the exact law of the scores needs them (docs/theory/exact-law.md).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri, ndtri

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import NoLimitError, UnboundedSupport
from attnlimit.tokens.base import IndependentForm, Numbers, Tail, Tokens


class Product(Tokens):
    """Independent, identically distributed, symmetric coordinates."""

    edge: Literal["flat", "atom"] | None = None
    coordinate_reach: float  # largest |coordinate| that matters: the edge, or where tails are spent
    symmetric = True

    def __init__(self, dim: int) -> None:
        self.dim = checks.count(dim, "dim")

    @abstractmethod
    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """CGF of one coordinate at u, real or complex with a non-zero real part."""

    @abstractmethod
    def coordinate_mean(self, u: Numbers) -> Numbers:
        """First derivative of `coordinate_cgf`."""

    @abstractmethod
    def coordinate_var(self, u: Numbers) -> Numbers:
        """Second derivative of `coordinate_cgf`."""

    def cgf(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_cgf(self._tilt(t)).sum(axis=-1))

    def tilted_mean(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_mean(self._tilt(t)))

    def tilted_cov(self, t: ArrayLike) -> Array:
        return np.real(self.coordinate_var(self._tilt(t)))[..., None] * np.eye(self.dim)

    @property
    def form(self) -> IndependentForm:
        return IndependentForm(
            self.coordinate_cgf,
            self.coordinate_mean,
            self.coordinate_var,
            self.coordinate_reach,
            self.edge,
        )

    def _upper(self, u: Numbers) -> Numbers:
        """u in units of 1/reach, reflected to a non-negative real part (the law is symmetric)."""
        v = self.coordinate_reach * u
        return np.where(np.real(v) < 0, -v, v)


class Cube(Product):
    """Tokens uniform in the cube [-half_width, half_width]^dim.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Cube(2).tilted_mean([2.0, 0.0]).round(4)  # coth 2 - 1/2
    array([0.5373, 0.    ])
    """

    edge = "flat"

    def __init__(self, dim: int, half_width: float = 1.0) -> None:
        super().__init__(dim)
        self.half_width = self.coordinate_reach = checks.positive(half_width, "half_width")

    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """log(sinh(au)/(au))."""
        v = self._upper(u)
        near = np.abs(v) < 0.3
        far = np.where(near, 1.0, v)
        u = np.where(near, v, 0.0)
        series = u**2 / 6 - u**4 / 180 + u**6 / 2835 - u**8 / 37800 + u**10 / 467775
        return np.where(near, series, far + np.log1p(-np.exp(-2 * far)) - np.log(2 * far))

    def coordinate_mean(self, u: Numbers) -> Numbers:
        """a (coth(au) - 1/(au))."""
        sign = np.where(np.real(u) < 0, -1.0, 1.0)
        v = self._upper(u)
        near = np.abs(v) < 0.3
        far = np.where(near, 1.0, v)
        u = np.where(near, v, 0.0)
        series = u / 3 - u**3 / 45 + 2 * u**5 / 945 - u**7 / 4725 + 2 * u**9 / 93555
        decay = np.exp(-2 * far)
        return sign * self.half_width * np.where(near, series, (1 + decay) / (1 - decay) - 1 / far)

    def coordinate_var(self, u: Numbers) -> Numbers:
        """a^2 (1/(au)^2 - 1/sinh(au)^2)."""
        v = self._upper(u)
        near = np.abs(v) < 0.3
        far = np.where(near, 1.0, v)
        u = np.where(near, v, 0.0)
        series = 1 / 3 - u**2 / 15 + 2 * u**4 / 189 - u**6 / 675 + 2 * u**8 / 10395
        decay = np.exp(-2 * far)
        exact = 1 / far**2 - 4 * decay / (1 - decay) ** 2
        return self.half_width**2 * np.where(near, series, exact)

    def extreme(self, u: ArrayLike) -> Array:
        return self.half_width * np.sign(self._direction(u))

    def transport(self, uniforms: Array) -> Array:
        return self.half_width * (2 * uniforms - 1)

    def __repr__(self) -> str:
        return f"Cube(dim={self.dim}, half_width={self.half_width:g})"


class Signs(Product):
    """Tokens uniform on the vertices {-scale, scale}^dim.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Signs(2).tilted_mean([1.0, 0.0]).round(4)  # tanh 1
    array([0.7616, 0.    ])
    """

    edge = "atom"

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        super().__init__(dim)
        self.scale = self.coordinate_reach = checks.positive(scale, "scale")

    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """log cosh(au)."""
        v = self._upper(u)
        near = np.abs(v) < 0.05
        far = np.where(near, 1.0, v)
        u = np.where(near, v, 0.0)
        series = u**2 / 2 - u**4 / 12 + u**6 / 45 - 17 * u**8 / 2520
        return np.where(near, series, far + np.log1p(np.exp(-2 * far)) - np.log(2.0))

    def coordinate_mean(self, u: Numbers) -> Numbers:
        """a tanh(au)."""
        return self.scale * np.tanh(self.scale * u)

    def coordinate_var(self, u: Numbers) -> Numbers:
        """a^2 / cosh(au)^2."""
        decay = np.exp(-2 * self._upper(u))
        return self.scale**2 * 4 * decay / (1 + decay) ** 2

    def extreme(self, u: ArrayLike) -> Array:
        return self.scale * np.where(self._direction(u) < 0, -1.0, 1.0)

    def transport(self, uniforms: Array) -> Array:
        return self.scale * np.where(uniforms < 0.5, -1.0, 1.0)

    def __repr__(self) -> str:
        return f"Signs(dim={self.dim}, scale={self.scale:g})"


class Laplace(Product):
    """Tokens with independent Laplace coordinates; no limit once a tilt reaches 1/scale.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Laplace(2).tilted_mean([0.5, 0.0]).round(4)
    array([1.3333, 0.    ])
    """

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        super().__init__(dim)
        self.scale = checks.positive(scale, "scale")
        self.coordinate_reach = 50 * self.scale

    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """-log(1 - b^2 u^2)."""
        return -np.log1p(-((self.scale * u) ** 2))

    def coordinate_mean(self, u: Numbers) -> Numbers:
        """2 b^2 u / (1 - b^2 u^2)."""
        return 2 * self.scale**2 * u / (1 - (self.scale * u) ** 2)

    def coordinate_var(self, u: Numbers) -> Numbers:
        """2 b^2 (1 + b^2 u^2) / (1 - b^2 u^2)^2."""
        square = (self.scale * u) ** 2
        return 2 * self.scale**2 * (1 + square) / (1 - square) ** 2

    def extreme(self, u: ArrayLike) -> Array:
        self._direction(u)
        raise UnboundedSupport(
            "Laplace tokens have no furthest point; use tokens of bounded support."
        )

    @property
    def tail(self) -> Tail:
        return Tail("exponential", rate=1 / self.scale)

    def _tilt(self, t: ArrayLike) -> Array:
        tilt = super()._tilt(t)
        largest = float(np.abs(tilt).max(initial=0.0))
        if largest >= 1 / self.scale:
            raise NoLimitError(
                f"Laplace tokens of scale {self.scale:g} have no infinite-token limit where a "
                f"coordinate of t is {largest:.4g}, not below 1/scale = {1 / self.scale:g}; use "
                "smaller scores."
            )
        return tilt

    def transport(self, uniforms: Array) -> Array:
        centred = uniforms - 0.5
        return -self.scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))

    def __repr__(self) -> str:
        return f"Laplace(dim={self.dim}, scale={self.scale:g})"


class Student(Tokens):
    """Multivariate Student t tokens: scale g / sqrt(chi2_df / df), with g standard normal.

    E exp<t, y> is infinite for every t but zero, so that attention over more and more tokens has no
    limit (docs/theory/heavy-tails.md): the limit, the horizon, rates and curves raise NoLimitError.
    `al.measure(head, tokens, "participation", ...)` shows what happens at finite n.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Student(2, df=3.0).cov()
    array([[3., 0.],
           [0., 3.]])
    """

    symmetric = True
    tail = Tail("exponential", rate=0.0)

    def __init__(self, dim: int, df: float, scale: float = 1.0) -> None:
        self.dim = checks.count(dim, "dim")
        self.df = checks.positive(df, "df")
        self.scale = checks.positive(scale, "scale")

    def cgf(self, t: ArrayLike) -> Array:
        return np.zeros(self._tilt(t).shape[:-1])

    def tilted_mean(self, t: ArrayLike) -> Array:
        return np.zeros_like(self._with_moment(t, 1, "mean"))

    def tilted_cov(self, t: ArrayLike) -> Array:
        zero = self._with_moment(t, 2, "covariance")
        variance = self.scale**2 * self.df / (self.df - 2)
        return np.broadcast_to(variance * np.eye(self.dim), (*zero.shape, self.dim)).copy()

    def _tilt(self, t: ArrayLike) -> Array:
        tilt = super()._tilt(t)
        if tilt.any():
            raise NoLimitError(
                f"{self!r} has no infinite-token limit where scores vary; "
                "measure the participation at finite n."
            )
        return tilt

    def _with_moment(self, t: ArrayLike, order: int, name: str) -> Array:
        if self.df <= order:
            raise NoLimitError(f"{self!r} has no {name}: df must exceed {order}.")
        return self._tilt(t)

    def extreme(self, u: ArrayLike) -> Array:
        self._direction(u)
        raise UnboundedSupport(
            "Student tokens have no furthest point; use tokens of bounded support."
        )

    @property
    def transport_dim(self) -> int:
        return self.dim + 1

    def transport(self, uniforms: Array) -> Array:
        mixing = chdtri(self.df, uniforms[:, -1:]) / self.df
        return np.asarray(self.scale * ndtri(uniforms[:, :-1]) / np.sqrt(mixing))

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        mixing = rng.chisquare(self.df, (n, 1)) / self.df
        return np.asarray(self.scale * rng.standard_normal((n, self.dim)) / np.sqrt(mixing))

    def __repr__(self) -> str:
        return f"Student(dim={self.dim}, df={self.df:g}, scale={self.scale:g})"
