"""Ratios and logarithms of modified Bessel functions, at any order and argument.

They are the CGF of the uniform measure on the sphere of R^d at order d/2 - 1, and by Archimedes'
projection that of the uniform measure in the ball at order d/2.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, ive

from attnlimit.checks import Array

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
