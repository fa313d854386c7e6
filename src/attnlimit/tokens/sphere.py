"""Tokens uniform on a sphere."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.tokens.spherical import Spherical


class Sphere(Spherical):
    """Tokens uniform on the sphere of the given radius in R^dim."""

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        size = checks.count(dim, "dim")
        super().__init__(size, checks.positive(radius, "radius"), radial_dim=size)

    def transport(self, uniforms: Array) -> Array:
        normals = ndtri(uniforms)
        return self.radius * normals / np.linalg.norm(normals, axis=1, keepdims=True)

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        normals = rng.standard_normal((n, self.dim))
        return self.radius * normals / np.linalg.norm(normals, axis=1, keepdims=True)

    def atoms(self) -> tuple[Array, Array] | None:
        if self.dim > 1:
            return None
        return self.radius * np.array([[-1.0], [1.0]]), np.array([0.5, 0.5])

    def __repr__(self) -> str:
        return f"Sphere(dim={self.dim}, radius={self.radius:g})"
