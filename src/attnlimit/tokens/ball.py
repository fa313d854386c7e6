"""Tokens uniform in a ball."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.tokens.spherical import Spherical


class Ball(Spherical):
    """Tokens uniform in the ball of the given radius in R^dim."""

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        size = checks.count(dim, "dim")
        super().__init__(size, checks.positive(radius, "radius"), radial_dim=size + 2)

    @property
    def transport_dim(self) -> int:
        return self.dim + 1

    def transport(self, uniforms: Array) -> Array:
        normals = ndtri(uniforms[:, :-1])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        return self.radius * normals * uniforms[:, -1:] ** (1 / self.dim)

    def __repr__(self) -> str:
        return f"Ball(dim={self.dim}, radius={self.radius:g})"
