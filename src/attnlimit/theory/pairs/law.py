"""The joint law of two queries that look at the same n keys: E[Delta_1 . Delta_2] at every n.

1/(D D') is a double Laplace integral, so the expectation over independent keys factorises as for
one query (docs/theory/moments.md, the two-query law). Some keys can be known: the query tokens
themselves, which are keys like any other. Delta is the output minus the query's own limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array

PAIR_STEP = 0.5
"""Step in alpha for pairs of queries; the trapezoid rule errs by exp(-pi^2 / step), below 1e-8."""
_MARGIN = 18.0  # natural logarithms kept below the leading term: errors below 1e-7
CAP = 6.0  # exp(-exp(6)) is zero


@dataclass(frozen=True, eq=False)
class OwnKeys:
    """Keys that are there for certain: their scores and centred values for one query."""

    score: Array  # (P,)
    value: Array  # (P, c): coordinates of V y - Gamma(x)


@dataclass(frozen=True, eq=False)
class PairTable:
    """What a pair of queries needs of the independent keys, on a grid of (alpha, alpha')."""

    alpha: tuple[Array, Array]
    log_phi: Array  # (J, J')
    drift: tuple[Array, Array]  # (J, J', c) each: E[w e^{-w-w'} u], E[w' e^{-w-w'} u'], in the
    # first c of the coordinates that the own keys' values have
    shared: Array  # (J, J'): E[w w' e^{-w-w'} <u, u'>]


def pair_alphas(
    score: Array, weight: Array, own: Array, n: NDArray[np.int64], step: float = PAIR_STEP
) -> Array:
    """Grid of alpha for one query of a pair, given its law of scores and its own keys' scores."""
    spare = max(float(n.min()) - len(own) - 2, 0.0)
    above = np.cumsum(weight[::-1])[::-1]
    reachable = score[above * float(n.max()) > 1e-9]
    top = float(reachable[-1]) if len(reachable) else float(score[-1])
    high = max(top + np.log(float(n.max())), float(own.max(initial=-np.inf))) + 14
    low, kept = float(min(score[0], own.min(initial=np.inf))) - 5, high
    while kept - low > PAIR_STEP:
        middle = (low + kept) / 2
        miss = -float(weight @ np.expm1(-np.exp(np.minimum(score - middle, CAP))))
        lost = -spare * np.log1p(-min(miss, 1 - 1e-12))
        lost += np.exp(np.minimum(own - middle, 50.0)).sum()
        if lost > _MARGIN:
            low = middle
        else:
            kept = middle
    return np.arange(low, high, step)


def tabulate_pair(
    scores: tuple[Array, Array],
    weight: Array,
    values: tuple[Array, Array],
    alpha: tuple[Array, Array],
) -> PairTable:
    """The table for keys given as nodes: scores (K,), weights (K,), centred values (K, c)."""
    w, v = (np.exp(np.minimum(s - a[:, None], CAP)) for s, a in zip(scores, alpha, strict=True))
    decay, other = np.exp(-w), np.exp(-v)
    miss = -(np.expm1(-w) @ weight)[:, None] - (decay * weight) @ np.expm1(-v).T
    first, second = w * decay * weight, v * other
    size = values[0].shape[1]
    drift_1 = np.stack([(first * values[0][:, c]) @ other.T for c in range(size)], axis=-1)
    drift_2 = np.stack(
        [(decay * (weight * values[1][:, c])) @ second.T for c in range(size)], axis=-1
    )
    together = (values[0] * values[1]).sum(axis=1)
    return PairTable(
        alpha=alpha,
        log_phi=np.log1p(-np.minimum(miss, 1 - 1e-15)),
        drift=(drift_1, drift_2),
        shared=(first * together) @ second.T,
    )


def pair_moment(table: PairTable, own: tuple[OwnKeys, OwnKeys], n: NDArray[np.int64]) -> Array:
    """E[Delta_1 . Delta_2] for each n, counting the own keys among the n."""
    fade, known = [], []
    for keys, alpha in zip(own, table.alpha, strict=True):
        w = np.exp(np.minimum(keys.score - alpha[:, None], 50.0))
        fade.append((alpha[1] - alpha[0]) * np.exp(-w.sum(axis=1)))
        known.append(w @ keys.value)
    drift_1, drift_2 = table.drift
    size = drift_1.shape[-1]
    phi = np.exp(table.log_phi)
    one_known = (drift_2 * known[0][:, None, :size]).sum(axis=-1)
    one_known += (drift_1 * known[1][None, :, :size]).sum(axis=-1)
    terms = np.stack(
        [
            (known[0] @ known[1].T) * phi**2,
            phi * (one_known + table.shared),
            (drift_1 * drift_2).sum(axis=-1),
        ],
        axis=-1,
    )
    terms *= np.multiply.outer(fade[0], fade[1])[..., None]
    others = n.astype(np.float64) - len(own[0].score)
    powers = np.exp((others - 2)[:, None] * table.log_phi.ravel())
    none, one, two = (powers @ terms.reshape(-1, 3)).T
    return none + others * one + others * (others - 1) * two


def own_key_moments(
    score: Array,
    weight: Array,
    linear: Array,
    quadratic: Array,
    own: OwnKeys,
    n: NDArray[np.int64],
) -> tuple[Array, Array]:
    """E Delta (len n, c) and E |Delta|^2 (len n,) for one query with some keys known.

    `linear` (K, c) are the coordinates of the centred value at the nodes, `quadratic` (K,) its
    expected square.
    """
    alpha = pair_alphas(score, weight, own.score, n)
    w = np.exp(np.minimum(score - alpha[:, None], CAP))
    decay = np.exp(-w)
    log_phi = np.log1p(-np.minimum(-(np.expm1(-w) @ weight), 1 - 1e-15))
    first = (w * decay * weight) @ linear
    second = (w**2 * decay * weight) @ quadratic
    own_w = np.exp(np.minimum(own.score - alpha[:, None], 50.0))
    fade = PAIR_STEP * np.exp(-own_w.sum(axis=1))
    known = own_w @ own.value
    crossed = (known**2).sum(axis=1)
    mean, square = [], []
    for count in n.astype(np.float64) - len(own.score):
        p1 = fade * np.exp((count - 1) * log_phi)
        p2 = fade * np.exp((count - 2) * log_phi)
        p0 = fade * np.exp(count * log_phi)
        mean.append(p0 @ known + count * (p1 @ first))
        square.append(
            p0 @ crossed
            + count * (p1 @ (2 * (known * first).sum(axis=1) + second))
            + count * (count - 1) * (p2 @ (first**2).sum(axis=1))
        )
    return np.array(mean), np.array(square)
