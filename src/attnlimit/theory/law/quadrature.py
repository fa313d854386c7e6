"""Laplace tables: the functions of t whose integrals are the exact law of attention at every n.

With w = t e^s for one key of score s, and t = e^{-alpha}, a table holds on a grid of alpha

    log phi = log E e^{-w},   linear = E[w e^{-w} f],   quadratic = E[w^2 e^{-w} f],

for chosen functions f of the key. None of them depends on n, so one sweep serves every n; the
integrals over t become plain sums over alpha, because dt = t d(alpha) and the trapezoid rule is
exponentially accurate there (docs/theory/exact-law.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.errors import NotConverged

ALPHA_STEP = 0.25
"""Step in alpha = -log t; the trapezoid rule errs by about exp(-pi^2 / step), below 1e-16."""

NORMALISATION_TOLERANCE = 1e-8
_CHUNK = 64


@dataclass(frozen=True, eq=False)
class LaplaceTable:
    """phi and the moments E[w e^{-w} f], E[w^2 e^{-w} f] on a grid of alpha."""

    step: float
    log_phi: Array  # (J,)
    mass: Array  # (J,)    E[w e^{-w}]
    square: Array  # (J,)  E[w^2 e^{-w}]
    linear: Array  # (J, r)
    quadratic: Array  # (J, q)

    def power(self, exponent: float) -> Array:
        """phi^exponent on the grid, times the step: the weights of an integral over alpha."""
        return self.step * np.exp(exponent * self.log_phi)

    def check_normalisation(self, n: int) -> float:
        """1 = n int E[e^s e^{-t e^s}] phi^{n-1} dt, exactly; raise if the table misses it."""
        total = float(n * (self.mass @ self.power(n - 1)))
        if not abs(total - 1) < NORMALISATION_TOLERANCE:
            raise NotConverged(
                f"the exact law's quadrature is off: its weights at n = {n} sum to {total:.12g}, "
                f"not 1 within {NORMALISATION_TOLERANCE:g}.",
                reached=abs(total - 1),
            )
        return abs(total - 1)

    def participation(self, n: int) -> float:
        """E sum_i p_i^2 over n keys."""
        return float(n * (self.square @ self.power(n - 1)))


def alpha_range(
    score: Array, weight: Array, n: NDArray[np.int64], margin: float = 40.0
) -> tuple[float, float]:
    """Where the integrands live: from phi^(n-1) negligible up to exp(-alpha) negligible.

    Scores so rare that n keys never reach them do not count. `margin` is the number of natural
    logarithms kept below the leading term; twice log n is added above, so that errors of order
    1/n keep their relative accuracy.
    """
    few, many = float(n.min()), float(n.max())
    above = np.cumsum(weight[::-1])[::-1]
    reachable = score[above * many > 1e-30]
    top = float(reachable[-1]) if len(reachable) else float(score[-1])
    high = top + 2 * np.log(many) + margin
    low = float(score[0]) - np.log(margin + 30) - 1
    if few > 2:
        lo, hi = low, high
        for _ in range(60):
            if hi - lo < 0.5:
                break
            middle = (lo + hi) / 2
            lost = -(few - 2) * np.log1p(-min(_one_minus_phi(score, weight, middle), 1 - 1e-16))
            lo, hi = (middle, hi) if lost > margin + 30 else (lo, middle)
        low = lo
    return low, high


def _one_minus_phi(score: Array, weight: Array, alpha: float) -> float:
    return float(-weight @ np.expm1(-np.exp(np.minimum(score - alpha, 7.0))))


def tabulate(
    score: Array,
    weight: Array,
    linear: Array,
    quadratic: Array,
    n: NDArray[np.int64],
) -> LaplaceTable:
    """Build the table of a score law given as sorted nodes, good for every n between the given.

    `linear` (K, r) and `quadratic` (K, q) are the functions f at the nodes. Nodes far above
    alpha contribute only to 1 - phi, nodes far below nothing, so each chunk of the grid looks at
    a window of nodes: the cost grows with the number of nodes, not with its square.
    """
    low, high = alpha_range(score, weight, n)
    depth = 45.0 + 2 * np.log(float(n.max()))
    alpha = np.arange(low, high + ALPHA_STEP, ALPHA_STEP)
    above = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
    columns = 2 + linear.shape[1] + quadratic.shape[1]
    one_minus_phi = np.empty(len(alpha))
    sums = np.empty((len(alpha), columns))
    first = np.concatenate([np.ones((len(score), 1)), linear], axis=1) * weight[:, None]
    second = np.concatenate([np.ones((len(score), 1)), quadratic], axis=1) * weight[:, None]
    split = first.shape[1]
    for start in range(0, len(alpha), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        here = alpha[chunk]
        i = int(np.searchsorted(score, here[0] - depth))
        j = int(np.searchsorted(score, here[-1] + 6.7))
        w = np.exp(np.minimum(score[i:j] - here[:, None], 6.7))
        decay = np.exp(-w)
        one_minus_phi[chunk] = above[j] - np.expm1(-w) @ weight[i:j]
        decay *= w
        sums[chunk, :split] = decay @ first[i:j]
        decay *= w
        sums[chunk, split:] = decay @ second[i:j]
    return LaplaceTable(
        step=ALPHA_STEP,
        log_phi=np.log1p(-np.minimum(one_minus_phi, 1 - 1e-16)),
        mass=sums[:, 0],
        linear=sums[:, 1:split],
        square=sums[:, split],
        quadratic=sums[:, split + 1 :],
    )
