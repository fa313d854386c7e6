"""Which pairs of queries on the sphere share keys: a pool of them, with weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.pairs.average import PairPool
from attnlimit.theory.pairs.sphere.keys import SphereKeys, below_top
from attnlimit.tokens import Sphere
from attnlimit.tokens.bessel import bessel_ratio, log_hypergeometric

_POOL = 4096
_TILTS = (1.0, 0.25)
_HEIGHT_GRID = 2001


def _reach(dim: int, n: NDArray[np.int64]) -> float:
    """Size of the tilt whose limit lies at the best height of n tokens."""
    height = 1 - float(below_top(dim, 1 / (float(n.max()) + 1)))
    return dim * max(height, 0.1) / (1 - height**2)


def pair_pool(
    keys: SphereKeys, first: Array, second: Array, weight: Array, n: NDArray[np.int64]
) -> PairPool:
    """Pairs matter by how much their tilts share, log E e^{s+s'} / (E e^s E e^s')."""
    b, c = keys.tilts(first), keys.tilts(second)
    sizes = np.linalg.norm(b, axis=1), np.linalg.norm(c, axis=1)
    cosine = np.abs((b * c).sum(axis=1)) / np.maximum(sizes[0] * sizes[1], 1e-300)
    reach, order = _reach(keys.dim, n), keys.dim / 2 - 1
    one, other = np.minimum(sizes[0], reach), np.minimum(sizes[1], reach)
    square = one**2 + other**2 + 2 * one * other * np.minimum(cosine, 1.0)
    joint, *alone = (log_hypergeometric(order, s) for s in (np.sqrt(square), one, other))
    return PairPool.of(joint - alone[0] - alone[1], weight, (b, c), (one, other), keys.values)


def query_pool(
    keys: SphereKeys, tokens: Sphere, n: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """Pairs of unit queries (M, d), (M, d) and their weights, of sum one.

    Half are independent. For the others the second query is tilted towards A'Ax, where it shares
    keys with the first, at two strengths. Each weighs what it stands for under the mixture.
    """
    first = tokens.points(_POOL, 0)
    second = tokens.points(_POOL, 7)[np.random.default_rng(0).permutation(_POOL)]
    towards = keys.tilts(first) @ keys.score
    length = np.linalg.norm(towards, axis=1)
    towards = towards / np.maximum(length, 1e-300)[:, None]
    typical = float(np.sqrt((np.linalg.norm(keys.tilts(first), axis=1) ** 2).mean()))
    size = min(typical, _reach(tokens.dim, n))
    order = tokens.dim / 2 - 1
    strength = size / np.sqrt(2) * float(bessel_ratio(order, np.array([size * np.sqrt(2)]))[0])
    kinds = np.arange(_POOL) % 4  # 0 and 1 independent, 2 and 3 tilted
    mixture = np.full(_POOL, 0.5)
    strengths = [part * strength for part in _TILTS]
    for kind, tilt in zip((2, 3), strengths, strict=True):
        here = kinds == kind
        second[here] = _tilted(second[here], towards[here], tilt, tokens.dim)
    height = (second * towards).sum(axis=1)
    for tilt in strengths:
        log_mass = float(log_hypergeometric(order, np.array([tilt]))[0])
        mixture += 0.25 * np.exp(np.logaddexp(tilt * height, -tilt * height) - np.log(2) - log_mass)
    weight = 1 / mixture
    return first, second, weight / weight.sum()


def _tilted(x: Array, towards: Array, strength: float, dim: int) -> Array:
    """Move uniform points so that their density is e^{strength <towards, x>}: heights by rank."""
    angle = np.linspace(0, np.pi, _HEIGHT_GRID)
    log_density = strength * (np.cos(angle) - 1)
    with np.errstate(divide="ignore"):
        log_density = log_density + (dim - 2) * np.log(np.sin(angle)) if dim > 2 else log_density
    below = np.cumsum(np.exp(log_density - log_density.max()))
    heights = (x * towards).sum(axis=1)
    across = x - heights[:, None] * towards
    across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
    rank = (np.argsort(np.argsort(-heights)) + 0.5) / len(x)
    turn = np.interp(rank * below[-1], below, angle)
    return np.cos(turn)[:, None] * towards + np.sin(turn)[:, None] * across
