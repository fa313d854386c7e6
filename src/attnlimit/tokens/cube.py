"""Tokens uniform in a cube."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.tokens.form import Numbers
from attnlimit.tokens.product import Product


class Cube(Product):
    """Tokens uniform in the cube [-half_width, half_width]^dim."""

    edge = "flat"

    def __init__(self, dim: int, half_width: float = 1.0) -> None:
        super().__init__(dim)
        self.half_width = self.coordinate_reach = checks.positive(half_width, "half_width")

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

    def extreme(self, u: ArrayLike) -> Array:
        return self.half_width * np.sign(self._direction(u))

    def transport(self, uniforms: Array) -> Array:
        return self.half_width * (2 * uniforms - 1)

    def __repr__(self) -> str:
        return f"Cube(dim={self.dim}, half_width={self.half_width:g})"
