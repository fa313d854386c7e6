"""Sharp scores on the sphere: where is attention frozen, and how does a law go on from there?

Beyond a cap one of the n keys takes nearly all the weight. Softmax is a maximum of scores with
independent noise of unit size, so that laws approach the hard maximum's in powers of 1/size, and
are extrapolated from few sizes below the cap (docs/theory/sphere.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.pairs.sphere.keys import below_top

_SPREAD = 2.5  # most by which the gap of heights may vary among the n of one group
_FROZEN = 8.0  # the cap for one query, as the gap of the two best scores of n
_LEVELS = np.array([1.0, 2.0, 4.0])  # sizes are the cap over these


def height_gap(dim: int, n: Array) -> Array:
    """About the gap between the best two heights of n tokens."""
    return below_top(dim, 2 / (n + 1)) - below_top(dim, 1 / (n + 1))


def groups(dim: int, n: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Runs of the increasing n whose best heights lie similarly close: one cap serves them."""
    gap = height_gap(dim, n.astype(np.float64))
    found, start = [], 0
    for k in range(1, len(n) + 1):
        if k == len(n) or gap[start] > _SPREAD * gap[k]:
            found.append(n[start:k])
            start = k
    return found


def extrapolation(dim: int, n: NDArray[np.int64], size: float) -> tuple[Array, Array]:
    """Sizes of tilts to evaluate one query's law at, and their shares in that at `size`.

    The law itself, or beyond the cap the parabola in 1/size through three sizes.
    """
    cap = _FROZEN / float(height_gap(dim, n.max()))
    if size <= cap:
        return np.array([size]), np.ones(1)
    return cap / _LEVELS, parabola(cap / size)


def parabola(place: float) -> Array:
    """Shares of the values at cap / 1, cap / 2 and cap / 4 in that at cap / place."""
    others = [np.delete(_LEVELS, k) for k in range(len(_LEVELS))]
    pairs = zip(_LEVELS, others, strict=True)
    return np.array([np.prod((place - rest) / (node - rest)) for node, rest in pairs])


def capped(tilts: Array, cap: float) -> Array:
    """The same tilts, none longer than the cap."""
    size = np.linalg.norm(tilts, axis=-1, keepdims=True)
    return np.asarray(tilts * np.minimum(1.0, cap / np.maximum(size, 1e-300)))


def pair_levels(tilts: Array, cap: float) -> list[tuple[Array, float]]:
    """Two tilts (2, d) as they are, or cut at three caps with shares that go on to their sizes."""
    sizes = np.linalg.norm(tilts, axis=1)
    beyond = sizes > cap
    if not beyond.any():
        return [(tilts, 1.0)]
    shares = parabola(float((cap / sizes[beyond]).mean()))
    return [(capped(tilts, cap / k), float(s)) for k, s in zip(_LEVELS, shares, strict=True)]
