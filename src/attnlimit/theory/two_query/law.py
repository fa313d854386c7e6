"""Joint law of the outputs of two queries over the same n keys (docs/theory/moments.md, eq. 5).

1/(D D') is a double Laplace integral, so the expectation over independent keys factorises as for
one query. Delta is the output minus the query's own limit. Some keys can be known: the query tokens
themselves, which are keys like any other. With t = e^{-alpha}, w = e^{s - alpha} and
u = Vy - Gamma(x), the sums over one key are

    phi = E e^{-w-w'},  a = E[w e^{-w-w'} u],  a' = E[w' e^{-w-w'} u'],  q = E[w w' e^{-w-w'} u.u'],

and E[Delta.Delta'] = integral of n q phi^{n-1} + n(n-1) a.a' phi^{n-2} over (alpha, alpha').

Averages of a costly function over pairs of queries, by stratified draws, with their errors.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import (
    PAIRS,
    Sweep,
    alpha_weights,
    key_weights,
    late_grid,
    log_phi,
    meeting,
)


@dataclass(frozen=True, eq=False)
class OwnKeys:
    """Keys that are there for certain: their scores and centred values for one query."""

    score: Array  # (P,)
    value: Array  # (P, c): coordinates of V y - Gamma(x)

    def on(self, alpha: Array) -> tuple[Array, Array]:
        """e^{-sum w} (J,) and sum w u (J, c) of these keys on a grid of alpha."""
        w = key_weights(self.score - alpha[:, None])
        return np.exp(-w.sum(axis=1)), w @ self.value


@dataclass(frozen=True, eq=False)
class PairTable:
    """Sums over one independent key for a pair of queries, on a grid of (alpha, alpha')."""

    alpha: tuple[Array, Array]  # late grids
    log_phi: Array  # (J, J')
    drift: tuple[Array, Array]  # (J, J', c) each: a and a'
    shared: Array  # (J, J'): q

    @staticmethod
    def of_nodes(
        scores: tuple[Array, Array],
        weight: Array,
        values: tuple[Array, Array],
        alpha: tuple[Array, Array],
    ) -> PairTable:
        """For keys given as nodes: scores (K,), weights (K,), centred values (K, c)."""
        first = Sweep.over(scores[0], weight, alpha[0])
        v = key_weights(scores[1] - alpha[1][:, None])
        faded = np.exp(-v)
        missed = first.missed[:, None] - first.decay @ np.expm1(-v).T
        pull, other_pull = first.decay * first.w, faded * v
        drift = (
            np.stack([(pull * c) @ faded.T for c in values[0].T], axis=-1),
            np.stack([(first.decay * c) @ other_pull.T for c in values[1].T], axis=-1),
        )
        shared = (pull * (values[0] * values[1]).sum(axis=1)) @ other_pull.T
        return PairTable(alpha, log_phi(missed), drift, shared)

    def moment(self, own: tuple[OwnKeys, OwnKeys], n: NDArray[np.int64]) -> Array:
        """E[Delta.Delta'] for each n, counting the own keys among the n."""
        fade, known = zip(*(k.on(a) for k, a in zip(own, self.alpha, strict=True)), strict=True)
        steps = [alpha_weights(alpha, 1) for alpha in self.alpha]
        phi = np.exp(self.log_phi)
        one_known = np.einsum("ijc,ic->ij", self.drift[1], known[0])
        one_known += np.einsum("ijc,jc->ij", self.drift[0], known[1])
        both = np.einsum("ijc,ijc->ij", *self.drift)
        parts = [(known[0] @ known[1].T) * phi**2, phi * (one_known + self.shared), both]
        terms = np.stack(parts, axis=-1)
        terms *= np.multiply.outer(steps[0] * fade[0], steps[1] * fade[1])[..., None]
        others = n.astype(np.float64) - len(own[0].score)
        powers = np.exp((others - 2)[:, None] * self.log_phi.ravel())
        none, one, two = (powers @ terms.reshape(-1, 3)).T
        return np.asarray(none + others * one + others * (others - 1) * two)


@dataclass(frozen=True, eq=False)
class OneQuery:
    """Sums over the keys of one query, independent and known ones, on a late grid."""

    sweep: Sweep
    linear: Array  # (J, c): E[w e^{-w} u], of the centred values u
    known: Array  # (J, c): the same sum over the known keys
    none: Array  # (len n, J): weights of sums in which no other key meets
    one: Array  # (len n, J): and one
    fade: Array  # (J,): e^{-sum w} of the known keys
    others: Array  # (len n, 1): how many keys are not known

    @staticmethod
    def of(
        score: Array,
        weight: Array,
        linear: Array,
        own: OwnKeys,
        n: NDArray[np.int64],
        alpha: Array | None = None,
    ) -> OneQuery:
        """From nodes, centred values (K, c) at them, and the late grid if it is at hand."""
        alpha = late_grid(score, weight, n, PAIRS, own.score) if alpha is None else alpha
        sweep = Sweep.over(score, weight, alpha)
        fade, known = own.on(alpha)
        others = n.astype(np.float64)[:, None] - len(own.score)
        none, one = (fade * meeting(sweep.log_phi, others, k, 1.0) for k in range(2))
        return OneQuery(sweep, sweep.moment(1, linear), known, none, one, fade, others)

    def mean(self) -> Array:
        """E Delta, (len n, c)."""
        steps = alpha_weights(self.sweep.alpha, 1)
        return np.asarray((steps * self.none) @ self.known + (steps * self.one) @ self.linear)

    def square(self, quadratic: Array) -> Array:
        """E|Delta|^2, (len n,), from the expected square of the centred value at the nodes (K,)."""
        two = self.fade * meeting(self.sweep.log_phi, self.others, 2, 1.0)
        met = 2 * (self.known * self.linear).sum(axis=1) + self.sweep.moment(2, quadratic)
        total = self.none * (self.known**2).sum(axis=1) + self.one * met
        total += two * (self.linear**2).sum(axis=1)
        return np.asarray(total @ alpha_weights(self.sweep.alpha, 2))


_PLAIN = 0.5  # share of the draws that does not follow the guess
_THREADS = 2


@dataclass(frozen=True, eq=False)
class MeanError:
    """E|m_n - m|^2 for each n, and the numerical error of the average over queries."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array

    @staticmethod
    def of_parts(
        n: NDArray[np.int64], own: tuple[Array, Array], pair: tuple[Array, Array]
    ) -> MeanError:
        """(1/n) own + (1 - 1/n) pair, each with its error (docs/theory/moments.md, eq. 4)."""
        error = np.hypot(own[1] / n, (1 - 1 / n) * pair[1])
        return MeanError(n, own[0] / n + (1 - 1 / n) * pair[0], error)


def sampled_mean(
    evaluate: Callable[[int], Array], guess: Array, weight: Array, picks: int, seed: int = 0
) -> tuple[Array, Array]:
    """Weighted mean of `evaluate` over candidates, and its standard error, from about `picks`.

    Candidates are sorted by the guess and cut into strata; two are drawn from each, which makes the
    estimate unbiased whatever the guess, and their differences are its error.

    Parameters
    ----------
    evaluate : callable
        Takes the index of a candidate and returns an array.
    guess : (M,) array
        How large its value may be, at least zero.
    weight : (M,) array
        What each candidate stands for; summed up with the values.
    picks : int
        If there are no more candidates than this, all of them are summed and the error is zero.
    """
    if len(weight) <= picks:
        values = np.array([evaluate(k) for k in range(len(weight))])
        total = np.tensordot(weight, values, axes=1)
        return total, np.zeros_like(total)
    mean_guess = float(weight @ guess / weight.sum())
    even = guess / mean_guess if mean_guess > 0 else np.ones(len(guess))
    measure = weight * (_PLAIN + (1 - _PLAIN) * even)
    chosen = _two_of_each(measure, np.argsort(guess, kind="stable"), picks // 2, seed).ravel()
    with ThreadPoolExecutor(_THREADS) as executor:
        values = np.array(list(executor.map(evaluate, chosen.tolist())))
    stands_for = measure.sum() * weight[chosen] / measure[chosen]
    scaled = values * stands_for.reshape(-1, *[1] * (values.ndim - 1))
    first, second = scaled[0::2], scaled[1::2]
    error = np.sqrt(((first - second) ** 2).sum(axis=0)) / (2 * len(first))
    return scaled.mean(axis=0), error


def _two_of_each(
    measure: Array, order: NDArray[np.int64], strata: int, seed: int
) -> NDArray[np.int64]:
    """Two candidates (strata, 2) from each stratum of equal measure along the order."""
    below = np.cumsum(measure[order])
    place = (np.arange(strata)[:, None] + np.random.default_rng(seed).random((strata, 2))) / strata
    drawn = np.searchsorted(below, place * below[-1], side="right")
    return order[np.minimum(drawn, len(order) - 1)]
