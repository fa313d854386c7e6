"""Integration of expectations over n keys: the sum over alpha that every law stands on.

With w = t e^s for one key of score s, and t = e^{-alpha}, every exact law is an integral over t of

    phi = E e^{-w},   E[w e^{-w} f],   E[w^2 e^{-w} f], ...

for functions f of the key, times phi^(n - k) where k distinct keys meet. None of these depends on
n, so one sweep serves every n; the integrals become plain sums over alpha, because dt = t d(alpha)
and the trapezoid rule is exponentially accurate there (docs/theory/exact-law.md).

With weights c_j = h of the trapezoid rule, the sum over t_j = t_0 e^{jh} must begin where t D is
negligible, D the total weight of the keys. It may begin at t D = 1/5 (`late_grid`) if the first
`CORRECTED` weights solve 1 = sum_j c_j (t_j D)^p e^{-t_j D} for all D up to START / t_0, by least
squares: a law, a mean of f / D^p, then errs by no more than this equation does at its worst D.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.errors import BadInput, NotConverged

if TYPE_CHECKING:
    from torch import Tensor

Numbers = TypeVar("Numbers", Array, "Tensor")

CAP = 6.0
"""Where scores above alpha may be cut: exp(-exp(6)) is as good as zero, and not denormal."""

NORMALISATION_TOLERANCE = 1e-8
_SURE = 1 - 1e-16
_FADED = 700.0
_WIDEST = 1e5  # range of scores that a sum over alpha covers
_CHUNK = 64
STEP = 0.5
"""Step in log t of sums that begin late; with the weights below the equation holds to 7e-7."""

START = 0.2
"""t D at the first node, for the largest D that matters."""

CORRECTED = 4
_SPAN = 12.0  # how far below the largest the D go, in logarithm, for which weights are solved
_NO_WEIGHT = 5.0  # log of a t D whose exponential is negligible
_SECTIONS = np.linspace(0, 1, 7)  # by which the search for the least alpha narrows at a time


@dataclass(frozen=True)
class Precision:
    """How fine the sum over alpha is, and how far it goes.

    The trapezoid rule errs by about exp(-pi^2 / step). Scores that n keys reach with a chance
    below `rare` do not count; `depth`, `below` and `above` are natural logarithms: by how much
    phi^(n-2) has fallen at the least alpha, and how far alpha goes past the extreme scores, where
    `per_log_n` of log n are added above.
    """

    step: float
    rare: float
    depth: float
    below: float
    above: float
    per_log_n: float


EXACT = Precision(0.25, 1e-30, 70.0, 1 + float(np.log(70.0)), 40.0, 2.0)
"""Errors below 1e-16; those of order 1/n keep their relative accuracy."""

PAIRS = Precision(0.5, 1e-9, 18.0, 5.0, 14.0, 1.0)
"""For the costlier law of two queries: errors below 1e-7."""

SAMPLED = Precision(0.7, 1e-7, 14.0, 5.0, 9.0, 1.0)
"""For pairs that are drawn, not summed: errors below 1e-4, far below those of the draws."""


def alpha_grid(
    score: Array,
    weight: Array,
    n: NDArray[np.int64],
    precision: Precision = EXACT,
    own: Array | None = None,
    reach: float = -np.inf,
) -> Array:
    """Where the integrands live: from phi^(n-2) negligible up to e^{-alpha} negligible.

    `own` are scores of keys that are there for certain, and `reach` is a score up to which others
    may come to be known.
    """
    order = np.argsort(score)
    score, weight = score[order], weight[order]
    known = np.empty(0) if own is None else own
    known_top = float(known.max(initial=reach))
    spare, many = max(float(n.min()) - len(known) - 2, 0.0), float(n.max())
    high = max(highest_alpha(score, weight, many, precision), known_top + precision.above)
    low, kept = float(min(score[0], known.min(initial=np.inf))) - precision.below, high
    while kept - low > 0.5:
        edges = low + (kept - low) * _SECTIONS
        middle = edges[1:-1, None]
        missed = -np.expm1(-key_weights(score - middle)) @ weight
        lost = key_weights(known - middle).sum(axis=1) - spare * log_phi(missed)
        deep = int((lost > precision.depth).sum())
        low, kept = edges[deep : deep + 2].tolist()
    if high - low > _WIDEST:
        raise BadInput(
            f"scores spread over {high - low:.3g}: attention is a hard maximum there, "
            "use hardmax_error or scale the head down."
        )
    return np.arange(low, high, precision.step)


def highest_alpha(score: Array, weight: Array, n: float, precision: Precision = EXACT) -> float:
    """Where e^{-alpha} is negligible beside the scores, in increasing order, that n keys reach."""
    top = highest_reached(score, weight, n, precision)
    return top + precision.per_log_n * math.log(n) + precision.above


def highest_reached(score: Array, weight: Array, n: float, precision: Precision) -> float:
    """The highest of the scores, in increasing order, that n keys reach but rarely."""
    reachable = score[np.cumsum(weight[::-1])[::-1] * n > precision.rare]
    return float(reachable[-1] if len(reachable) else score[-1])


def lowest_alpha(
    negligible: Callable[[float], bool], start: float, bottom: float = -_FADED
) -> float:
    """Go down from `start` until `negligible(alpha)`, or to `bottom`."""
    alpha = start
    while alpha > bottom and not negligible(alpha):
        alpha -= 1.0
    return max(alpha, bottom)


def times_between(high: float, low: float, step: float) -> Array:
    """Nodes of t = e^{-alpha}, from alpha = `high` down past `low`."""
    return np.exp(-np.arange(high, low - step, -step))


def start_weights(nodes: int, power: int, step: float = STEP) -> Array:
    """Weights c_j / h of so many nodes, by increasing t."""
    weights = np.ones(nodes)
    weights[:CORRECTED] = _first(power, step)[:nodes]
    return weights


def late_grid(
    score: Array,
    weight: Array,
    n: NDArray[np.int64],
    precision: Precision,
    own: Array | None = None,
) -> Array:
    """The nodes of `alpha_grid` from START on: its last ones, of the smallest t, are left out."""
    order = np.argsort(score)
    score, weight = score[order], weight[order]
    alpha = alpha_grid(score, weight, n, precision, own)
    many = float(n.max())
    top = highest_reached(score, weight, many, precision)
    near = score <= top
    mean = many * (weight[near] @ np.exp(score[near] - top))
    known = 0.0 if own is None else float(np.exp(own - top).sum())
    largest = top + np.log(1 + mean + known)  # the strongest key that n reach, and all the others
    return alpha[: np.searchsorted(alpha, largest - np.log(START)) + 1]


def alpha_weights(alpha: Array, power: int) -> Array:
    """Weights of the nodes of a late grid, step included."""
    step = float(alpha[1] - alpha[0])
    return step * start_weights(len(alpha), power, round(step, 12))[::-1]


@lru_cache
def _first(power: int, step: float) -> Array:
    total = np.exp(-np.linspace(0, _SPAN, 1000))
    times = START * np.exp(np.arange(0, _SPAN + _NO_WEIGHT - np.log(START), step))
    terms = total[:, None] * times
    terms = step * terms**power * np.exp(-terms)
    rest = 1 - terms[:, CORRECTED:].sum(axis=1)
    return np.linalg.lstsq(terms[:, :CORRECTED], rest, rcond=None)[0]


def key_weights(gap: Array) -> Array:
    """w = e^{gap} for scores less alpha."""
    return np.exp(np.minimum(gap, CAP))


def log_phi(missed: Array) -> Array:
    """Logarithm of phi from 1 - phi, with all digits where phi is near one."""
    return np.log1p(-np.minimum(missed, _SURE))


def meeting(log_phi: Numbers, n: float | Array, distinct: int, step: float) -> Numbers:
    """Weights over alpha of a sum in which `distinct` of n keys meet.

    n (n-1) ... (n - distinct + 1) phi^(n - distinct), times the step; for arrays and tensors. With
    a column of n, for each of them.
    """
    ways: Any = step  # a number, or a column of them
    for k in range(distinct):
        ways = ways * (n - k)
    left = n - distinct
    power = (left.clip(0) if isinstance(left, np.ndarray) else max(left, 0)) * log_phi
    return ways * (np.exp(power) if isinstance(power, np.ndarray) else power.exp())


def check_weights(total: Array | Tensor, tolerance: float) -> float:
    """How far from one the weights of keys sum, which is exact in theory; raise if too far."""
    missed = float((total - 1).__abs__().max())
    if not missed <= tolerance:
        raise NotConverged(
            f"the exact law's quadrature is off: its weights sum to one only within {missed:.2g}, "
            f"not within {tolerance:g}; use measure here.",
            reached=missed,
        )
    return missed


@dataclass(frozen=True, eq=False)
class Sweep:
    """Keys given as nodes, as one query sees them: phi, and moments E[w^k e^{-w} f], by alpha."""

    alpha: Array  # (J,)
    w: Array  # (J, K)
    decay: Array  # (J, K): e^{-w} times the probabilities of the nodes
    missed: Array  # (J,): 1 - phi

    @staticmethod
    def over(score: Array, weight: Array, alpha: Array) -> Sweep:
        """Sweep nodes of these scores and probabilities, in any order."""
        w = key_weights(score - alpha[:, None])
        return Sweep(alpha, w, np.exp(-w) * weight, -np.expm1(-w) @ weight)

    @cached_property
    def log_phi(self) -> Array:
        """Logarithm of phi, (J,)."""
        return log_phi(self.missed)

    def moment(self, power: int, of: Array) -> Array:
        """E[w^power e^{-w} f] for f (K,) or (K, c) at the nodes: (J,) or (J, c)."""
        return (self.decay * self.w**power if power else self.decay) @ of

    def meeting(self, n: float | Array, distinct: int) -> Array:
        """Weights over alpha of a sum in which `distinct` of n keys meet; n as in `meeting`."""
        return meeting(self.log_phi, n, distinct, float(self.alpha[1] - self.alpha[0]))


@dataclass(frozen=True, eq=False)
class LaplaceTable:
    """phi and the moments E[w e^{-w} f], E[w^2 e^{-w} f] on a grid of alpha."""

    log_phi: Array  # (J,)
    mass: Array  # (J,)    E[w e^{-w}]
    square: Array  # (J,)  E[w^2 e^{-w}]
    linear: Array  # (J, r)
    quadratic: Array  # (J, q)

    def meeting(self, n: NDArray[np.int64]) -> tuple[Array, Array]:
        """Weights (len n, J) for one key and for two of n, once their check has passed.

        1 = n int E[e^s e^{-t e^s}] phi^{n-1} dt, exactly; raise if the table misses it.
        """
        counts = n.astype(np.float64)[:, None]
        once, twice = (meeting(self.log_phi, counts, k, EXACT.step) for k in (1, 2))
        check_weights(once @ self.mass, NORMALISATION_TOLERANCE)
        return once, twice


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
    alpha = alpha_grid(score, weight, n)
    depth = 45.0 + 2 * np.log(float(n.max()))
    missed, *sums = laplace_sums(score, weight, linear, quadratic, alpha, depth)
    return LaplaceTable(log_phi(missed), *sums)


def laplace_sums(
    score: Array, weight: Array, linear: Array, quadratic: Array, alpha: Array, depth: float
) -> tuple[Array, Array, Array, Array, Array]:
    """1 - phi, and E[w e^{-w} f], E[w^2 e^{-w} f] for f = 1 and the given, at increasing `alpha`.

    `score` increases. Nodes more than `depth` below alpha count for nothing. The weights need not
    sum to one: with intensities in their place these are the sums of a Poisson process.
    """
    above = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
    missed = np.empty(len(alpha))
    ones = np.ones((len(score), 1))
    functions = [np.concatenate([ones, f], axis=1) * weight[:, None] for f in (linear, quadratic)]
    first, second = (np.empty((len(alpha), f.shape[1])) for f in functions)
    for start in range(0, len(alpha), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        here = alpha[chunk]
        seen = slice(*np.searchsorted(score, (here[0] - depth, here[-1] + CAP)))
        w = key_weights(score[seen] - here[:, None])
        missed[chunk] = above[seen.stop] - np.expm1(-w) @ weight[seen]
        decay = w * np.exp(-w)
        first[chunk] = decay @ functions[0][seen]
        decay *= w
        second[chunk] = decay @ functions[1][seen]
    return missed, first[:, 0], second[:, 0], first[:, 1:], second[:, 1:]
