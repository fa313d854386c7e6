"""Laplace tokens: their limit stops existing at a finite score."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import NoLimitError, UnboundedSupport
from attnlimit.tokens.form import Numbers
from attnlimit.tokens.product import Product
from attnlimit.tokens.tail import Tail


class Laplace(Product):
    """Tokens with independent Laplace coordinates; no limit once a tilt reaches 1/scale."""

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
        raise UnboundedSupport("Laplace tokens have no furthest point: the support is unbounded.")

    @property
    def tail(self) -> Tail:
        return Tail("exponential", rate=1 / self.scale)

    def _tilt(self, t: ArrayLike) -> Array:
        tilt = super()._tilt(t)
        largest = float(np.abs(tilt).max(initial=0.0))
        if largest >= 1 / self.scale:
            raise NoLimitError(
                f"Laplace tokens of scale {self.scale:g} have no infinite-token limit where a "
                f"coordinate of t reaches 1/scale = {1 / self.scale:g}; here it is {largest:.4g}."
            )
        return tilt

    def transport(self, uniforms: Array) -> Array:
        centred = uniforms - 0.5
        return -self.scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))

    def __repr__(self) -> str:
        return f"Laplace(dim={self.dim}, scale={self.scale:g})"
