"""Tokens uniform on a sphere or in a ball: one radial law, seen from two dimensions.

The uniform measure in the ball of R^d is the projection of the one on the sphere of R^{d+2}
(Archimedes), so both are a `radial_dim`-dimensional sphere seen through d coordinates.

Ratios and logarithms of modified Bessel functions, at any order and argument.

They are the CGF of the uniform measure on the sphere of R^d at order d/2 - 1, and by Archimedes'
projection that of the uniform measure in the ball at order d/2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ive, ndtri

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.tokens.base import SphericalForm, Tokens
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


_SERIES_TERMS = 2000
_DEBYE = (  # u_1 .. u_4 of the uniform expansion, as polynomials in p
    ((1, 3 / 24), (3, -5 / 24)),
    ((2, 81 / 1152), (4, -462 / 1152), (6, 385 / 1152)),
    ((3, 30375 / 414720), (5, -369603 / 414720), (7, 765765 / 414720), (9, -425425 / 414720)),
    (
        (4, 4465125 / 39813120),
        (6, -94121676 / 39813120),
        (8, 349922430 / 39813120),
        (10, -446185740 / 39813120),
        (12, 185910725 / 39813120),
    ),
)


def log_hypergeometric(order: float, x: Array) -> Array:
    """log 0F1(; order + 1; x^2/4) = log Gamma(order+1) + order log(2/x) + log I_order(x)."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    result = np.empty_like(x)
    small = x**2 <= 600 * (order + 1)
    result[small] = _log_series(order, x[small])
    large = x[~small]
    scaled = ive(order, large)
    usable = (scaled > 1e-280) & np.isfinite(scaled) & (large < 1e8)
    log_bessel = np.empty_like(large)
    log_bessel[usable] = np.log(scaled[usable]) + large[usable]
    log_bessel[~usable] = _log_bessel_uniform(order, large[~usable])
    result[~small] = gammaln(order + 1) + order * np.log(2 / large) + log_bessel
    return result


def _log_series(order: float, x: Array) -> Array:
    """Power series: all terms are positive, so it is accurate to the last digits near zero."""
    quarter = x**2 / 4
    term = np.ones_like(x)
    total = np.zeros_like(x)
    for k in range(1, _SERIES_TERMS):
        term = term * quarter / (k * (order + k))
        total += term
        if not (term > 1e-17 * total).any():
            break
    return np.log1p(total)


def _log_bessel_uniform(order: float, x: Array) -> Array:
    """Debye's expansion for large order, Hankel's for order near zero and huge argument."""
    if order < 30:
        mu = 4 * order**2
        tail = 1 - (mu - 1) / (8 * x) * (1 - (mu - 9) / (16 * x))
        return x - np.log(2 * np.pi * x) / 2 + np.log(tail)
    z = x / order
    root = np.sqrt(1 + z**2)
    p = 1 / root
    correction = np.ones_like(x)
    for k, polynomial in enumerate(_DEBYE, start=1):
        correction += sum(c * p**power for power, c in polynomial) / order**k
    eta = root + np.log(z / (1 + root))
    return order * eta - np.log(2 * np.pi * order) / 2 - np.log1p(z**2) / 4 + np.log(correction)


def bessel_ratio(order: float, x: Array) -> Array:
    """I_{order+1}(x) / I_order(x): the radial gradient of `log_hypergeometric`."""
    x = np.asarray(x, dtype=np.float64)
    if order == -0.5:
        return np.tanh(x)
    result = np.empty_like(x)
    huge = _width(order, x) > 2e4
    result[huge] = _riccati(order, x[huge])[0]
    rest = x[~huge]
    numerator, denominator = ive(order + 1, rest), ive(order, rest)
    usable = (numerator > 1e-280) & (denominator > 1e-280) & (rest > 1e-3)
    ratio = np.empty_like(rest)
    ratio[usable] = numerator[usable] / denominator[usable]
    ratio[~usable] = _continued_fraction(order, rest[~usable])
    result[~huge] = ratio
    return result


def bessel_ratio_slope(order: float, x: Array) -> Array:
    """Derivative of `bessel_ratio` in x: 1 - R^2 - (2 order + 1) R / x, without cancellation."""
    x = np.asarray(x, dtype=np.float64)
    if order == -0.5:
        return np.exp(-2 * np.logaddexp(x, -x) + 2 * np.log(2))
    result = np.empty_like(x)
    huge = _width(order, x) > 2e4
    result[huge] = _riccati(order, x[huge])[1]
    rest = x[~huge]
    ratio = bessel_ratio(order, rest)
    safe = np.maximum(rest, 1e-300)
    over_x = np.where(rest > 1e-8, ratio / safe, 1 / (2 * order + 2))
    next_over_x = np.where(rest > 1e-8, bessel_ratio(order + 1, rest) / safe, 1 / (2 * order + 4))
    # R' = R/x + R (R_{+1} - R): for small x no two terms of order one cancel.
    small_form = over_x + rest**2 * over_x * (next_over_x - over_x)
    large_form = 1 - ratio**2 - (2 * order + 1) * over_x
    result[~huge] = np.where(rest < order + 1, small_form, large_form)
    return result


def _width(order: float, x: Array) -> Array:
    return np.hypot(2 * order + 1, 2 * x)


def _riccati(order: float, x: Array) -> tuple[Array, Array]:
    """Slow-variation expansion of R' = 1 - R^2 - cR/x about the balanced root, error width^-3."""
    c = 2 * order + 1
    w = _width(order, x)
    balanced = 2 * x / (c + w)
    balanced_slope = 2 * c / (w * (c + w))
    first = -x * balanced_slope / w
    first_slope = first * (1 / x - 8 * x / w**2 - 4 * x / (w * (c + w)))
    second = -(first_slope + first**2) * x / w
    return balanced + first + second, balanced_slope + first_slope


def _continued_fraction(order: float, x: Array) -> Array:
    """Gauss's continued fraction, from the tail up; converges fast for x below the order."""
    depth = int(60 + 1.5 * np.max(x, initial=0.0) ** 0.9)
    value = np.zeros_like(x)
    for k in range(depth, 0, -1):
        value = x / (2 * (order + k) + x * value)
    return value
