"""Random signs: tokens uniform on the vertices of a cube."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.tokens.form import Numbers
from attnlimit.tokens.product import Product


class Signs(Product):
    """Tokens uniform on the vertices {-scale, scale}^dim."""

    edge = "atom"

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        super().__init__(dim)
        self.scale = self.coordinate_reach = checks.positive(scale, "scale")

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

    def extreme(self, u: ArrayLike) -> Array:
        return self.scale * np.where(self._direction(u) < 0, -1.0, 1.0)

    def transport(self, uniforms: Array) -> Array:
        return self.scale * np.where(uniforms < 0.5, -1.0, 1.0)

    def __repr__(self) -> str:
        return f"Signs(dim={self.dim}, scale={self.scale:g})"
