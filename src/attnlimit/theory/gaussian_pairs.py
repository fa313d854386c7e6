"""The two-query law for Gaussian keys: the plane of two tilts, summed one axis at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pair_law import (
    CAP,
    PAIR_STEP,
    OwnKeys,
    PairTable,
    own_key_moments,
    pair_alphas,
    pair_moment,
)

_PARALLEL = 1e-6
_SPLINE_STEP = 0.25


def normal_nodes(score_std: float) -> tuple[Array, Array]:
    """Trapezoid nodes for g ~ N(0,1) that resolve exp(-t e^{score_std g}) to about 1e-8."""
    step = min(0.5, PAIR_STEP / max(score_std, 1e-300))
    g = np.arange(-8.5, min(2 * score_std + 8.5, 10.0) + step, step)
    weight = np.exp(-(g**2) / 2)
    return g, weight / weight.sum()


def gaussian_pair_moment(white: WhitenedHead, z1: Array, z2: Array, n: NDArray[np.int64]) -> Array:
    """E[(Gamma_n(z1) - m).(Gamma_n(z2) - m)] given two whitened queries, which are keys too.

    m is the mean output of the limit. The product of the two limits, which averages to zero
    over queries, is left out; n counts the two queries' own keys.
    """
    b1, b2 = white.tilts(np.stack([z1, z2]))
    own = np.stack([z1, z2])
    sigma = (float(np.linalg.norm(b1)), float(np.linalg.norm(b2)))
    nodes = tuple(normal_nodes(s) for s in sigma)
    alpha = tuple(
        pair_alphas(s * g, weight, own @ b, n)
        for s, (g, weight), b in zip(sigma, nodes, (b1, b2), strict=True)
    )
    axes, cosine = _plane(b1, b2, *sigma)
    values = np.concatenate([axes, own - b1, own - b2]) @ white.values.T
    frame = np.asarray(np.linalg.qr(values.T, mode="r")).T  # the six vectors' coordinates, by row
    table = _table(
        sigma, cosine, alpha[0], alpha[1], nodes[0], frame[:2, :2], float(np.trace(white.metric))
    )
    joint = pair_moment(table, (OwnKeys(own @ b1, frame[2:4]), OwnKeys(own @ b2, frame[4:])), n)
    limits = np.stack([b1 - white.offset, b2 - white.offset]) @ white.values.T
    for here, other, b in ((0, 1, b1), (1, 0, b2)):
        joint += _mean_shift(white, b, sigma[here], nodes[here], own, n) @ limits[other]
    return joint


def gaussian_own_moment(white: WhitenedHead, z: Array, n: NDArray[np.int64]) -> Array:
    """E|Gamma_n(z) - m|^2, less |Gamma(z) - m|^2, for a whitened query that is a key too."""
    b = white.tilts(z[None])[0]
    sigma = float(np.linalg.norm(b))
    g, weight = normal_nodes(sigma)
    along = white.values @ (b / max(sigma, 1e-300))
    gain = float(along @ along)
    quadratic = (g - sigma) ** 2 * gain + (np.trace(white.metric) - gain)
    own = OwnKeys(np.array([z @ b]), (white.values @ (z - b))[None])
    mean, square = own_key_moments(
        sigma * g, weight, (g - sigma)[:, None] * along, quadratic, own, n
    )
    return square + 2 * mean @ (white.values @ (b - white.offset))


def _mean_shift(
    white: WhitenedHead,
    b: Array,
    sigma: float,
    nodes: tuple[Array, Array],
    own: Array,
    n: NDArray[np.int64],
) -> Array:
    """E Gamma_n - Gamma at one query of the pair, both own keys known; (len n, d_v)."""
    g, weight = nodes
    along = white.values @ (b / max(sigma, 1e-300))
    keys = OwnKeys(own @ b, (own - b) @ white.values.T)
    linear = (g - sigma)[:, None] * along
    return own_key_moments(sigma * g, weight, linear, np.zeros(len(g)), keys, n)[0]


def _plane(b1: Array, b2: Array, sigma1: float, sigma2: float) -> tuple[Array, float]:
    """Orthonormal axes of the plane of two tilts, the first along b1, and their cosine."""
    first = b1 / max(sigma1, 1e-300)
    cosine = float(np.clip(first @ b2 / max(sigma2, 1e-300), -1, 1))
    rest = b2 / max(sigma2, 1e-300) - cosine * first
    length = float(np.linalg.norm(rest))
    if length < _PARALLEL:
        return np.stack([first, np.zeros_like(first)]), float(np.sign(cosine))
    return np.stack([first, rest / length]), cosine


def _table(
    sigma: tuple[float, float],
    cosine: float,
    alpha1: Array,
    alpha2: Array,
    nodes: tuple[Array, Array],
    frame: Array,
    total: float,
) -> PairTable:
    """Tables over keys (y1, y2) in the plane: s = sigma1 y1, s' = sigma2 (r y1 + rho y2).

    Sums over y2 depend on alpha' - sigma2 r y1 alone, so they are five functions of one variable;
    the sums over y1 are then matrix products. `frame` rows are the outputs of the plane's axes,
    `total` the trace of the output's covariance.
    """
    rho = np.sqrt(max(1 - cosine**2, 0.0))
    y, weight = nodes
    w = np.exp(np.minimum(sigma[0] * y - alpha1[:, None], CAP))
    decay = np.exp(-w) * weight
    pull = w * decay
    missed, G1, H0, H1, H2 = _across_sums(sigma[1] * rho, alpha2 - sigma[1] * cosine * y[:, None])
    G0 = 1 - missed
    first, second = y - sigma[0], y - sigma[1] * cosine  # y1 less each limit's coordinate
    H1_centred = H1 - sigma[1] * rho * H0
    miss = -(np.expm1(-w) @ weight)[:, None] + decay @ missed
    drift_1 = np.stack([(pull * first) @ G0, pull @ G1], axis=-1)
    drift_2 = np.stack([(decay * second) @ H0, decay @ H1_centred], axis=-1)
    gram = frame @ frame.T
    shared = (total - np.trace(gram)) * (pull @ H0)
    shared += gram[0, 0] * ((pull * first * second) @ H0)
    shared += gram[0, 1] * ((pull * first) @ H1_centred + (pull * second) @ H1)
    shared += gram[1, 1] * (pull @ (H2 - sigma[1] * rho * H1))
    return PairTable(
        alpha=(alpha1, alpha2),
        log_phi=np.log1p(-np.minimum(miss, 1 - 1e-15)),
        drift=(drift_1 @ frame, drift_2 @ frame),
        shared=shared,
    )


def _across_sums(spread: float, x: Array) -> list[Array]:
    """1 - E e^{-w}, E[e^{-w} g], E[w e^{-w} (1, g, g^2)] for w = e^{spread g - x}, g normal."""
    g, weight = normal_nodes(spread)
    grid = np.arange(x.min() - 1, x.max() + 1 + _SPLINE_STEP, _SPLINE_STEP)
    w = np.exp(np.minimum(spread * g - grid[:, None], CAP))
    decay = np.exp(-w)
    pull = w * decay
    columns = [-np.expm1(-w) @ weight, decay @ (weight * g)]
    columns += [pull @ (weight * g**k) for k in range(3)]
    found = CubicSpline(grid, np.stack(columns, axis=1))(x)
    return [np.ascontiguousarray(found[..., k]) for k in range(5)]
