"""Where may a sum over t begin? At t D = 1/5, if its first nodes stand for all before them.

Every exact law is the mean of f / D^p over draws of keys, D their total weight and p one or two,
written as a sum over t_j = t_0 e^{jh} with

    1 = sum_j c_j (t_j D)^p e^{-t_j D}.

With c_j = h, the trapezoid rule, the sum must begin where t D is negligible. Here the first
`CORRECTED` of the c_j are solved for instead, for all D up to START / t_0 at once, by least
squares; the others stay h. A law then errs by no more than the equation does at its worst D.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import Precision, alpha_grid, highest_reached

STEP = 0.5
"""Step in log t; with the weights below the equation holds to 7e-7."""

START = 0.2
"""t D at the first node, for the largest D that matters."""

CORRECTED = 4
_SPAN = 12.0  # how far below the largest the D go, in logarithm, for which weights are solved
_FADED = 5.0  # log of a t D whose exponential is negligible


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
    times = START * np.exp(np.arange(0, _SPAN + _FADED - np.log(START), step))
    terms = total[:, None] * times
    terms = step * terms**power * np.exp(-terms)
    rest = 1 - terms[:, CORRECTED:].sum(axis=1)
    return np.linalg.lstsq(terms[:, :CORRECTED], rest, rcond=None)[0]
