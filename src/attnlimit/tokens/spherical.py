"""Tokens uniform on a sphere or in a ball: one radial law, seen from two dimensions.

The uniform measure in the ball of R^d is the projection of the one on the sphere of R^{d+2}
(Archimedes), so both are a `radial_dim`-dimensional sphere seen through d coordinates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtri

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.tokens.base import SphericalForm, Tokens
from attnlimit.tokens.bessel import bessel_ratio, bessel_ratio_slope, log_hypergeometric
from attnlimit.tokens.score_law import ScoreLaw, resolved_panels

_WIDEST = 5e4  # score that the nodes resolve


class Spherical(Tokens):
    """Uniform tokens on the sphere of R^radial_dim, of which d coordinates are kept.

    With x = r|t| and nu = radial_dim/2 - 1: K = log 0F1(; nu+1; x^2/4), and the gradient is
    r I_{nu+1}(x)/I_nu(x) along t.
    """

    radial_dim: int
    symmetric = True

    def __init__(self, dim: int, radius: float, radial_dim: int) -> None:
        self.dim = dim
        self.radius = radius
        self.radial_dim = radial_dim
        self._order = radial_dim / 2 - 1

    @property
    def form(self) -> SphericalForm:
        return SphericalForm(self.radius, self.radial_dim)

    def reach(self, matrix: Array) -> float:
        return self.radius * float(np.linalg.norm(matrix, 2))

    def cgf(self, t: ArrayLike) -> Array:
        return log_hypergeometric(self._order, self.radius * self._norm(self._tilt(t)))

    def tilted_mean(self, t: ArrayLike) -> Array:
        t = self._tilt(t)
        return self._tangential(self._norm(t))[..., None] * t

    def tilted_cov(self, t: ArrayLike) -> Array:
        t = self._tilt(t)
        norm = self._norm(t)
        unit = t / np.maximum(norm, 1e-300)[..., None]
        radial = self.radius**2 * bessel_ratio_slope(self._order, self.radius * norm)
        tangential = self._tangential(norm)
        along = unit[..., :, None] * unit[..., None, :]
        across = tangential[..., None, None] * np.eye(self.dim)
        return across + (radial - tangential)[..., None, None] * along

    def extreme(self, u: ArrayLike) -> Array:
        u = self._direction(u)
        return self.radius * u / np.linalg.norm(u, axis=-1, keepdims=True)

    def score_law(self, t: Array) -> ScoreLaw:
        norm = float(np.linalg.norm(t))
        unit = t / norm if norm > 0 else np.eye(self.dim)[0]
        height, weight = _height_nodes(self.radial_dim, self.radius * norm)
        # Orthogonal to t the token has variance r^2 (1 - h^2) / (radial_dim - 1) each way.
        across = self.radius**2 * (1 - height**2) / max(self.radial_dim - 1, 1)
        return ScoreLaw.build(
            score=self.radius * norm * height,
            weight=weight,
            coefficients=self.radius * height[:, None],
            basis=unit[None],
            spread=across[:, None],
            spread_cov=(np.eye(self.dim) - np.outer(unit, unit))[None],
        )

    def _norm(self, t: Array) -> Array:
        return np.asarray(np.linalg.norm(t, axis=-1))

    def _tangential(self, norm: Array) -> Array:
        """|grad K| / |t|, which is also the variance across t; r^2/radial_dim at zero."""
        x = self.radius * norm
        safe = np.maximum(x, 1e-6)
        over_x = np.where(x > 1e-6, bessel_ratio(self._order, safe) / safe, 1 / self.radial_dim)
        return self.radius**2 * over_x


def _height_nodes(radial_dim: int, kappa: float) -> tuple[Array, Array]:
    """Nodes h in [-1, 1] of the density (1-h^2)^((radial_dim-3)/2) that resolve exp(kappa h).

    With h = tanh x the density is sech^(radial_dim-1) x, smooth even at the ends; panels are cut
    so that the score kappa h moves by at most 2 across each.
    """
    if radial_dim == 1:
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    if kappa > _WIDEST:
        raise BadInput(
            f"scores reach {kappa:.3g}: attention is a hard maximum there, use hardmax_error or "
            "scale the head down."
        )
    power = radial_dim - 1
    reach = np.arccosh(np.exp(min(110.0 / power, 700.0)))  # sech^power < 1e-47 beyond it
    width = min(1.0, 4.0 / np.sqrt(power))
    panels = np.linspace(-reach, reach, 2 + int(2 * reach / width))
    top = np.tanh(reach)
    cuts = np.arctanh(np.linspace(-top, top, 2 + int(kappa * top))[1:-1])
    x, dx = resolved_panels(np.unique(np.concatenate([panels, cuts])))
    log_density = -power * (np.logaddexp(x, -x) - np.log(2))
    log_density += gammaln(radial_dim / 2) - gammaln((radial_dim - 1) / 2) - np.log(np.pi) / 2
    return np.tanh(x), dx * np.exp(log_density)


class Sphere(Spherical):
    """Tokens uniform on the sphere of the given radius in R^dim.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Sphere(3).tilted_mean([2.0, 0.0, 0.0]).round(4)  # coth 2 - 1/2
    array([0.5373, 0.    , 0.    ])
    """

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


class Ball(Spherical):
    """Tokens uniform in the ball of the given radius in R^dim.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Ball(3).tilted_mean([2.0, 0.0, 0.0]).round(4)
    array([0.3611, 0.    , 0.    ])
    """

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
