"""Distance of the best of n tokens, uniform in a cube, to the cube's furthest corner.

With gaps g_i = 2 a U_i from the corner, U_i uniform, a token's score falls short of the corner's
by D = sum_i b_i U_i, b_i = 2 a |t_i|. A table holds the law of D and the gaps' moments given it, on
nodes that serve every n: by inclusion and exclusion for few coordinates, else by inverting the
Laplace transform on a line through its saddle (docs/theory/hardmax.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from attnlimit.checks import Array
from attnlimit.errors import NotConverged
from attnlimit.tokens.score_law import resolved_panels

_SUBSET_LIMIT = 12
_KINK_LIMIT = 6
_MAX_FREQUENCIES = 200_000
_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class CornerTable:
    """Law of the shortfall D at nodes, with the moments of U given D times the density."""

    shortfall: Array  # (K,)
    weight: Array  # (K,)   quadrature weights in D
    below: Array  # (K,)    P(D <= shortfall)
    density: Array  # (K,)
    linear: Array  # (K, k)  density * E[U_i | D]
    quadratic: Array  # (K,)  density * E[U' W U | D]
    rounding: Array  # (K,)   rounding error of `quadratic`

    def best_of(self, n: int) -> Array:
        """Weights of the nearest of n tokens; checked to sum to one."""
        below = np.clip(self.below, 0.0, 1 - 1e-16)
        weight = n * self.weight * np.exp((n - 1) * np.log1p(-below))
        off = abs(float(weight @ self.density) - 1)
        energy = max(float(weight @ self.quadratic), 0.0)
        lost = float(weight @ self.rounding)
        off = max(off, min(1.0, lost / energy if energy > lost else 1.0) if lost > 0 else 0.0)
        if not off < _TOLERANCE:
            raise NotConverged(
                f"the law of the cube's corner is off by {off:.2g} at n = {n}: "
                "A x has too unequal coordinates; leave the query out.",
                reached=off,
            )
        return weight


def corner_table(slopes: Array, form: Array, most: int) -> CornerTable:
    """The table for D = sum_i slopes_i U_i and the quadratic form U' form U, up to n = most."""
    count = len(slopes)
    log_volume = float(gammaln(count + 1) + np.log(slopes).sum())
    edges = _edges(slopes, log_volume, most)
    shortfall, weight = resolved_panels(edges)
    if count <= _SUBSET_LIMIT:
        return CornerTable(shortfall, weight, *by_subsets(slopes, form, shortfall))
    panels = shortfall.reshape(len(edges) - 1, -1)
    rows = [by_inversion(slopes, form, nodes) for nodes in panels]
    below, density, linear, quadratic = (np.concatenate(part) for part in zip(*rows, strict=True))
    nothing = np.zeros(len(shortfall))
    return CornerTable(shortfall, weight, below, density, linear, quadratic, nothing)


def _edges(slopes: Array, log_volume: float, most: int) -> Array:
    """Panels fine in log D below, where P(D) is near D^k / volume, and in D above."""
    count, top = len(slopes), float(slopes.sum())
    first = np.exp((np.log(1e-17 / most) + log_volume) / count)
    width = float(np.sqrt((slopes**2).sum() / 12)) / 2
    ratio = np.expm1(1.5 / count)
    edges = [float(first)]
    while edges[-1] < top:
        edges.append(edges[-1] + min(ratio * edges[-1], width))
    edges[-1] = top
    if count <= _KINK_LIMIT:
        edges.extend(_subset_sums(slopes)[0][1:-1])
    unique = np.unique(np.array(edges))
    return unique[np.append(True, np.diff(unique) > 1e-13 * unique[1:])]


def _subset_sums(slopes: Array) -> tuple[Array, Array]:
    members = np.zeros((1, 0), dtype=bool)
    for _ in slopes:
        members = np.concatenate(
            [np.column_stack([members, np.full(len(members), flag)]) for flag in (False, True)]
        )
    return members @ slopes, members


def by_subsets(
    slopes: Array, form: Array, shortfall: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Sum over subsets S of (-1)^|S| (D - b_S)_+^m / m!: exact, and few terms where D is small."""
    count = len(slopes)
    sums, members = _subset_sums(slopes)
    sign = np.where(members.sum(axis=1) % 2, -1.0, 1.0) / np.prod(slopes)
    excess = np.maximum(shortfall[:, None] - sums, 0.0)
    inside = excess > 0
    powers = [
        np.where(inside, sign * excess ** (count + j), 0.0) / np.exp(gammaln(count + j + 1))
        for j in (-1, 0, 1)
    ]
    below, density = powers[1].sum(axis=1), powers[0].sum(axis=1)
    inverse = 1 / slopes
    linear = below[:, None] * inverse + powers[0] @ members
    plain = inverse @ form @ inverse + (np.diag(form) * inverse**2).sum()
    crossed = 2 * members @ (form @ inverse)
    squared = np.einsum("si,ij,sj->s", members, form, members, optimize=True)
    quadratic = plain * powers[2].sum(axis=1) + powers[1] @ crossed + powers[0] @ squared
    sizes = (plain * np.abs(powers[2]), np.abs(powers[1] * crossed), np.abs(powers[0] * squared))
    rounding = np.finfo(np.float64).eps * sum(size.sum(axis=1) for size in sizes)
    return below, density, linear, quadratic, rounding


def by_inversion(slopes: Array, form: Array, shortfall: Array) -> tuple[Array, Array, Array, Array]:
    """Invert E[e^{-zD} ...] along the line Re z = c where it is smallest."""
    top = float(slopes.sum())
    c = _saddle(slopes, float(shortfall.mean()), 10 / top)
    # Aliases at distance `period` are damped by e^{-|c| period}, or outside the support.
    depth = float(shortfall.max()) if c > 0 else top - float(shortfall.min())
    period = min(4 * top, 8 * depth + 40 / abs(c))
    step = 2 * np.pi / period
    omega = np.arange(0, _bandwidth(slopes, c) + step, step)
    if len(omega) > _MAX_FREQUENCIES:
        raise NotConverged(
            "the law of the cube's corner needs too many frequencies: the query's scores A x have "
            f"too unequal coordinates, from {slopes.min():.3g} to {slopes.max():.3g}."
        )
    z = c + 1j * omega
    share = np.full(len(omega), 2 / period)
    share[0] /= 2
    log_moment = np.zeros(len(z), dtype=complex)
    mean = np.empty((len(z), len(slopes)), dtype=complex)
    spread = np.zeros(len(z), dtype=complex)
    for i, b in enumerate(slopes):
        v = b * z
        small = np.abs(v) < 0.05
        w = np.where(small, 1.0, v)
        # For Re z < 0 the same functions of -v, mirrored: U and 1 - U have one law.
        mirrored = w.real < 0
        q = np.exp(np.where(mirrored, w, -w))
        log_part = np.log((1 - q) / np.where(mirrored, -w, w)) - np.where(mirrored, w, 0)
        log_moment += np.where(small, -v / 2 + v**2 / 24 - v**4 / 2880, log_part)
        exact = np.where(mirrored, 1 / w + 1 / (1 - q), 1 / w - q / (1 - q))
        mean[:, i] = np.where(small, 0.5 - v / 12 + v**3 / 720, exact)
        variance = np.where(small, 1 / 12 - v**2 / 240, 1 / w**2 - q / (1 - q) ** 2)
        spread += form[i, i] * variance
    energy = np.einsum("zi,ij,zj->z", mean, form, mean, optimize=True) + spread
    kernel = share * np.exp(log_moment + np.multiply.outer(shortfall, z))
    below = np.real((kernel / z).sum(axis=1)) + (1.0 if c < 0 else 0.0)
    return (
        below,
        np.real(kernel.sum(axis=1)),
        np.real(kernel @ mean),
        np.real(kernel @ energy),
    )


def _saddle(slopes: Array, shortfall: float, least: float) -> float:
    """Where the inversion's integrand is smallest on the real axis, kept off its pole at 0."""

    def tilted(c: float) -> float:
        v = slopes * abs(c)
        safe = np.maximum(v, 1e-4)
        mean = np.where(v > 1e-4, 1 / safe - 1 / np.expm1(np.minimum(safe, 700)), 0.5 - v / 12)
        return float(slopes @ (mean if c > 0 else 1 - mean)) - shortfall

    total = float(slopes.sum())
    reach = 2 * len(slopes) / max(min(shortfall, total - shortfall), 1e-6 * total)
    side = 1.0 if shortfall < total / 2 else -1.0
    if tilted(side * least) * side <= 0 or tilted(side * reach) * side >= 0:
        return side * least
    return side * max(least, abs(float(brentq(tilted, side * least, side * reach, xtol=1e-12))))


def _bandwidth(slopes: Array, c: float) -> float:
    """Frequency past which |E e^{-zD}| is below 1e-18 of its value at z = c."""
    log_crest = np.log(1 / np.tanh(slopes * abs(c) / 2) * abs(c))
    omega = abs(c) + 1 / float(slopes.sum())
    while np.minimum(0.0, log_crest - np.log(np.hypot(c, omega))).sum() > -42:
        omega *= 1.2
    return float(omega)
