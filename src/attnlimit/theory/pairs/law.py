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
from attnlimit.theory.law.quadrature import PAIRS, Sweep, key_weights, log_phi, meeting
from attnlimit.theory.law.start import alpha_weights, late_grid


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
    """What a pair of queries needs of the independent keys, on a grid of (alpha, alpha')."""

    alpha: tuple[Array, Array]  # late grids
    log_phi: Array  # (J, J')
    drift: tuple[Array, Array]  # (J, J', c) each: E[w e^{-w-w'} u], E[w' e^{-w-w'} u'], in the
    # first c of the coordinates that the own keys' values have
    shared: Array  # (J, J'): E[w w' e^{-w-w'} <u, u'>]


def tabulate_pair(
    scores: tuple[Array, Array],
    weight: Array,
    values: tuple[Array, Array],
    alpha: tuple[Array, Array],
) -> PairTable:
    """The table for keys given as nodes: scores (K,), weights (K,), centred values (K, c)."""
    first, v = Sweep.over(scores[0], weight, alpha[0]), key_weights(scores[1] - alpha[1][:, None])
    faded = np.exp(-v)
    missed = first.missed[:, None] - first.decay @ np.expm1(-v).T
    pull, other_pull = first.decay * first.w, faded * v
    drift_1 = [(pull * c) @ faded.T for c in values[0].T]
    drift_2 = [(first.decay * c) @ other_pull.T for c in values[1].T]
    shared = (pull * (values[0] * values[1]).sum(axis=1)) @ other_pull.T
    drift = (np.stack(drift_1, axis=-1), np.stack(drift_2, axis=-1))
    return PairTable(alpha, log_phi(missed), drift, shared)


def pair_moment(table: PairTable, own: tuple[OwnKeys, OwnKeys], n: NDArray[np.int64]) -> Array:
    """E[Delta_1 . Delta_2] for each n, counting the own keys among the n."""
    fade, known = zip(*(k.on(a) for k, a in zip(own, table.alpha, strict=True)), strict=True)
    steps = [alpha_weights(alpha, 1) for alpha in table.alpha]
    drift_1, drift_2 = table.drift
    size = drift_1.shape[-1]
    phi = np.exp(table.log_phi)
    one_known = np.einsum("ijc,ic->ij", drift_2, known[0][:, :size])
    one_known += np.einsum("ijc,jc->ij", drift_1, known[1][:, :size])
    met = phi * (one_known + table.shared)
    both = np.einsum("ijc,ijc->ij", drift_1, drift_2)
    terms = np.stack([(known[0] @ known[1].T) * phi**2, met, both], axis=-1)
    terms *= np.multiply.outer(steps[0] * fade[0], steps[1] * fade[1])[..., None]
    others = n.astype(np.float64) - len(own[0].score)
    powers = np.exp((others - 2)[:, None] * table.log_phi.ravel())
    none, one, two = (powers @ terms.reshape(-1, 3)).T
    return none + others * one + others * (others - 1) * two


@dataclass(frozen=True, eq=False)
class OneQuery:
    """What one query needs of the independent keys and of those that are known, on a late grid."""

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
        found = self.none * (self.known**2).sum(axis=1) + self.one * met
        found += two * (self.linear**2).sum(axis=1)
        return np.asarray(found @ alpha_weights(self.sweep.alpha, 2))
