"""Tokens with independent coordinates of one law: cube, random signs, Laplace.

Each law gives its coordinate's CGF and two derivatives, for complex arguments too: that is what
the exact law of their scores needs (docs/theory/exact-law.md, independent coordinates).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import NoLimitError, UnboundedSupport
from attnlimit.tokens.base import Tokens

Numbers = NDArray[np.inexact]


class Product(Tokens):
    """Independent, identically distributed, symmetric coordinates."""

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

    def mean(self) -> Array:
        return np.zeros(self.dim)

    def cov(self) -> Array:
        return float(np.real(self.coordinate_var(np.zeros(1)))[0]) * np.eye(self.dim)

    def cgf(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_cgf(self._tilt(t)).sum(axis=-1))

    def tilted_mean(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_mean(self._tilt(t)))

    def tilted_cov(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_var(self._tilt(t)))[..., None] * np.eye(self.dim)

    @property
    @abstractmethod
    def score_reach(self) -> float:
        """Largest |coordinate| that matters: the support's edge, or where the tail is spent."""


class Cube(Product):
    """Tokens uniform in the cube [-half_width, half_width]^dim."""

    def __init__(self, dim: int, half_width: float = 1.0) -> None:
        super().__init__(dim)
        self.half_width = checks.positive(half_width, "half_width")

    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """log(sinh(au)/(au))."""
        v = self._upper(u)
        near = np.abs(v) < 0.3
        far = np.where(near, 1.0, v)
        series = v**2 / 6 - v**4 / 180 + v**6 / 2835 - v**8 / 37800 + v**10 / 467775
        return np.where(near, series, far + np.log1p(-np.exp(-2 * far)) - np.log(2 * far))

    def coordinate_mean(self, u: Numbers) -> Numbers:
        """a (coth(au) - 1/(au))."""
        sign = np.where(np.real(u) < 0, -1.0, 1.0)
        v = self._upper(u)
        near = np.abs(v) < 0.3
        far = np.where(near, 1.0, v)
        series = v / 3 - v**3 / 45 + 2 * v**5 / 945 - v**7 / 4725 + 2 * v**9 / 93555
        decay = np.exp(-2 * far)
        return sign * self.half_width * np.where(near, series, (1 + decay) / (1 - decay) - 1 / far)

    def coordinate_var(self, u: Numbers) -> Numbers:
        """a^2 (1/(au)^2 - 1/sinh(au)^2)."""
        v = self._upper(u)
        near = np.abs(v) < 0.3
        far = np.where(near, 1.0, v)
        series = 1 / 3 - v**2 / 15 + 2 * v**4 / 189 - v**6 / 675 + 2 * v**8 / 10395
        decay = np.exp(-2 * far)
        exact = 1 / far**2 - 4 * decay / (1 - decay) ** 2
        return self.half_width**2 * np.where(near, series, exact)

    def _upper(self, u: Numbers) -> Numbers:
        """The scaled argument, reflected to a non-negative real part (the law is symmetric)."""
        v = self.half_width * u
        return np.where(np.real(v) < 0, -v, v)

    def extreme(self, u: ArrayLike) -> Array:
        return self.half_width * np.sign(self._direction(u))

    def _transport(self, uniforms: Array) -> Array:
        return self.half_width * (2 * uniforms - 1)

    @property
    def score_reach(self) -> float:
        return self.half_width

    def __repr__(self) -> str:
        return f"Cube(dim={self.dim}, half_width={self.half_width:g})"


class Signs(Product):
    """Tokens uniform on the vertices {-scale, scale}^dim."""

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        super().__init__(dim)
        self.scale = checks.positive(scale, "scale")

    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """log cosh(au)."""
        v = self._upper(u)
        near = np.abs(v) < 0.05
        far = np.where(near, 1.0, v)
        series = v**2 / 2 - v**4 / 12 + v**6 / 45 - 17 * v**8 / 2520
        return np.where(near, series, far + np.log1p(np.exp(-2 * far)) - np.log(2.0))

    def coordinate_mean(self, u: Numbers) -> Numbers:
        """a tanh(au)."""
        return self.scale * np.tanh(self.scale * u)

    def coordinate_var(self, u: Numbers) -> Numbers:
        """a^2 / cosh(au)^2."""
        decay = np.exp(-2 * self._upper(u))
        return self.scale**2 * 4 * decay / (1 + decay) ** 2

    def _upper(self, u: Numbers) -> Numbers:
        v = self.scale * u
        return np.where(np.real(v) < 0, -v, v)

    def extreme(self, u: ArrayLike) -> Array:
        return self.scale * np.where(self._direction(u) < 0, -1.0, 1.0)

    def _transport(self, uniforms: Array) -> Array:
        return self.scale * np.where(uniforms < 0.5, -1.0, 1.0)

    @property
    def score_reach(self) -> float:
        return self.scale

    def __repr__(self) -> str:
        return f"Signs(dim={self.dim}, scale={self.scale:g})"


class Laplace(Product):
    """Tokens with independent Laplace coordinates; no limit once a tilt reaches 1/scale."""

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        super().__init__(dim)
        self.scale = checks.positive(scale, "scale")

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
        raise UnboundedSupport("Laplace tokens have no furthest point: the support is unbounded.")

    def _tilt(self, t: ArrayLike) -> Array:
        tilt = super()._tilt(t)
        largest = float(np.abs(tilt).max(initial=0.0))
        if largest >= 1 / self.scale:
            raise NoLimitError(
                f"Laplace tokens of scale {self.scale:g} have no infinite-token limit where a "
                f"coordinate of t reaches 1/scale = {1 / self.scale:g}; here it is {largest:.4g}."
            )
        return tilt

    def _transport(self, uniforms: Array) -> Array:
        centred = uniforms - 0.5
        return -self.scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))

    @property
    def score_reach(self) -> float:
        return 50 * self.scale

    def __repr__(self) -> str:
        return f"Laplace(dim={self.dim}, scale={self.scale:g})"
