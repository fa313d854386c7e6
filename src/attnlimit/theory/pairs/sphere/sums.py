"""Sums over the second angle of a key on the sphere: what the second of two queries sees of it.

Gauss panels in the angle are cut so that scores move by little in each; keys that the query cannot
see among n get none (docs/theory/sphere.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import key_weights

PANEL = 4.0  # scores move by at most this much in a panel
ANGLE = 2.5  # and angles by this over sqrt(d)
DEPTH = 16.0  # a key whose score is log n and this below the least alpha weighs nothing
_UNSEEN = 32.0  # natural logarithms below 1/n of densities that never matter
_CHUNK = 1_500_000


def across_sums(
    base: Array,
    spread: Array,
    alpha: Array,
    dim: int,
    points: int,
    n: NDArray[np.int64],
    degrees: tuple[int, ...],
) -> tuple[Array, dict[tuple[int, int], Array]]:
    """1 - E e^{-w} and E[w^k e^{-w} z^m] for w = e^{base + spread z - alpha}.

    (K, J) each, one row for each base and spread; z = cos b, b of density sin^(dim-3). Only the z
    that are seen matter: the others leave e^{-w} z^m at what it is without keys, E z^m.
    """
    names = [(k, m) for k, degree in enumerate(degrees) for m in range(degree + 1)]
    found = np.zeros((len(names), len(base), len(alpha)))
    if dim == 2:
        z = np.broadcast_to([1.0, -1.0], (len(base), 2))
        score = base[:, None] + spread[:, None] * z
        found[:] = _kernel(score, np.full(z.shape, 0.5), z, alpha, degrees)
    else:
        _fill_seen(found, base, spread, alpha, dim, points, n, degrees)
    sums = dict(zip(names, found, strict=True))
    missed = sums[0, 0]
    for m in range(degrees[0] + 1):
        sums[0, m] = _power_mean(dim, m) - sums[0, m]
    return missed, sums


def _fill_seen(
    found: Array,
    base: Array,
    spread: Array,
    alpha: Array,
    dim: int,
    points: int,
    n: NDArray[np.int64],
    degrees: tuple[int, ...],
) -> None:
    """`_kernel` for every row, over panels in b that hold the z that are seen."""
    least = margin(dim - 3, n)
    top = float(np.cos(least))
    depth = float(np.log(n.max())) + DEPTH
    low = np.clip((alpha[0] - depth - base) / np.maximum(spread, 1e-300), -top, top)
    turns = (np.arccos(low) - least) * np.sqrt(dim) / ANGLE
    panels = np.ceil(np.maximum((top - low) * spread / PANEL, turns)).astype(np.int64)
    rows = np.flatnonzero(low < top)
    rows = rows[np.argsort(panels[rows], kind="stable")]
    start = 0
    while start < len(rows):
        size = int(panels[rows[start]])
        most = max(1, _CHUNK // (points * (size + size // 4 + 1) * len(alpha)))
        block = rows[start : start + most]
        block = block[panels[block] <= size + size // 4 + 1]
        edges = top + (low[block, None] - top) * np.linspace(0, 1, int(panels[block[-1]]) + 1)
        angle, width = panel_nodes(np.arccos(np.clip(edges, -1, 1)), points)
        z = np.cos(angle)
        weight = width * np.sin(angle) ** (dim - 3) / mass(dim - 3)
        score = base[block, None] + spread[block, None] * z
        found[:, block] = _kernel(score, weight, z, alpha, degrees)
        start += len(block)


def _kernel(score: Array, weight: Array, z: Array, alpha: Array, degrees: tuple[int, ...]) -> Array:
    """E[(1 - e^{-w}) z^m], and E[w^k e^{-w} z^m] for k > 0, in order; (sums, rows, J)."""
    powers = np.stack([weight * z**m for m in range(max(degrees) + 1)], axis=-1)
    w = key_weights(score[:, None, :] - alpha[:, None])
    decay = np.exp(-w)
    still = powers[..., : degrees[0] + 1]
    found = [still.sum(axis=1)[:, None] - decay @ still]
    for degree in degrees[1:]:
        decay *= w
        found.append(decay @ powers[..., : degree + 1])
    return np.moveaxis(np.concatenate(found, axis=-1), -1, 0)


def _power_mean(dim: int, power: int) -> float:
    """E z^power for z = cos b, b of density sin^(dim-3); for dim = 2 a random sign."""
    if power % 2:
        return 0.0
    return float(np.prod([(k - 1) / (dim - 3 + k) for k in range(2, power + 1, 2)]))


def panel_nodes(edges: Array, points: int) -> tuple[Array, Array]:
    """Gauss nodes and weights of the panels between `edges` (m, P + 1), as rows."""
    unit, unit_weight = np.polynomial.legendre.leggauss(points)
    half, middle = np.diff(edges, axis=1) / 2, (edges[:, 1:] + edges[:, :-1]) / 2
    place = middle[..., None] + half[..., None] * unit
    width = np.abs(half)[..., None] * unit_weight
    return place.reshape(len(edges), -1), width.reshape(len(edges), -1)


def mass(power: int) -> float:
    """Integral of sin^power over (0, pi)."""
    return float(np.exp(np.log(np.pi) / 2 + gammaln((power + 1) / 2) - gammaln(power / 2 + 1)))


def margin(power: int, n: NDArray[np.int64]) -> float:
    """The angle below which none of n keys ever is."""
    if power <= 0:
        return 0.0
    return float(np.arcsin(np.exp(-(_UNSEEN + np.log(float(n.max()))) / power)))
