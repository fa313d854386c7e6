"""Finitely many tokens with known scores and values: all of them keys, all or some of them queries.

The tokens of a document and one head, or a stand-in for a measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Precision, Sweep, alpha_grid
from attnlimit.theory.law.start import late_grid
from attnlimit.theory.pairs.law import OneQuery, OwnKeys, pair_moment, tabulate_pair


@dataclass(frozen=True, eq=False)
class Population:
    """Finitely many tokens: all of them keys, and some as queries that stand for all.

    n of them are drawn with replacement.
    """

    repeats: ClassVar[bool] = True  # whether one token can be drawn twice

    rows: NDArray[np.int64]  # (R,): which tokens are queries
    share: Array  # (R,): what each stands for, of sum one
    scores: Array  # (R, N)
    attention: Array  # (R, N)
    outputs: Array  # (R, d_v): the queries' limits
    values: Array  # (N, d_v)
    weights: Array  # (N,)

    @classmethod
    def of(cls, scores: Array, values: Array, weights: Array, most: int) -> Self:
        """Tokens with scores (N, N), at `most` so many of them as queries."""
        rows = query_rows(len(values), most)
        with np.errstate(divide="ignore"):
            attention = softmax(scores[rows] + np.log(weights), axis=1)
        share = weights[rows] / weights[rows].sum()
        outputs = attention @ values
        return cls(rows, share, scores[rows], attention, outputs, values, weights)

    @cached_property
    def mean(self) -> Array:
        """The mean limit, (d_v,)."""
        return self.share @ self.outputs

    def key_share(self, n: int) -> Array:
        """Softmax weight of each key against n - 1 average ones: a / (a + n - 1), (R, N).

        With a = e^{s_ik} / E e^{s_i}: a key k known to be there moves the output of query i by
        that much of V y_k - Gamma_i, to first order.
        """
        ratio = self.attention / np.maximum(self.weights, 1e-300)
        return np.asarray(ratio / (ratio + n - 1))

    def own(self, query: int, keys: NDArray[np.int64]) -> OwnKeys:
        """Keys that are there for certain, as a query sees them."""
        return OwnKeys(self.scores[query, keys], self.values[keys] - self.outputs[query])

    def sharing(self, n: NDArray[np.int64]) -> Array:
        """By what the average product of two responses makes a covariance: keys to share."""
        return n.astype(np.float64) - 2

    def response(self, i: int, n: NDArray[np.int64]) -> tuple[Array, Array, Array]:
        """E Gamma_n(x_i) - m (len n, c), E|Gamma_n(x_i) - m|^2 (len n), and the response.

        The query's own token is one of the keys. The response (len n, N, c) is by how much each
        token, known to be another one, moves the mean.
        """
        own = self.own(i, self.rows[[i]])
        centred = self.values - self.outputs[i]
        alpha = alpha_grid(self.scores[i], self.weights, n, PAIRS, own.score)
        sweep = Sweep.over(self.scores[i], self.weights, alpha)
        drift = sweep.moment(1, centred)
        fade, known = own.on(alpha)
        gone = np.exp(-sweep.w)  # (J, N)
        others = n.astype(np.float64)[:, None] - 2
        none, one = (fade * sweep.meeting(others, k) for k in range(2))  # (len n, J)
        vector = none[:, :, None] * known + one[:, :, None] * drift  # (len n, J, c)
        found = gone.T @ vector + (none @ (sweep.w * gone))[:, :, None] * centred
        mean = np.tensordot(found, self.weights, axes=(1, 0))
        limit = self.outputs[i] - self.mean
        return mean + limit, self.squared(i, self.rows[[i]], n), found - mean[:, None]

    def pair(self, i: int, j: int, n: NDArray[np.int64], precision: Precision = PAIRS) -> Array:
        """E[(Gamma_n(x_i) - m).(Gamma_n(x_j) - m)], both tokens among the n keys."""
        keys = self.rows[[i, j]]
        own = (self.own(i, keys), self.own(j, keys))
        scores = (self.scores[i], self.scores[j])
        first, second = (
            late_grid(s, self.weights, n, precision, k.score)
            for s, k in zip(scores, own, strict=True)
        )
        centred = (self.values - self.outputs[i], self.values - self.outputs[j])
        table = tabulate_pair(scores, self.weights, centred, (first, second))
        limits = self.outputs[[i, j]] - self.mean
        joint = pair_moment(table, own, n) + limits[0] @ limits[1]
        fine = (first, second) if precision == PAIRS else (None, None)
        for here, keys_here, alpha, other in zip((i, j), own, fine, limits[::-1], strict=True):
            joint += self._one_query(here, keys_here, n, alpha).mean() @ other
        return joint

    def squared(self, i: int, keys: NDArray[np.int64], n: NDArray[np.int64]) -> Array:
        """E|Gamma_n(x_i) - m|^2 with these tokens among the n keys, for each n."""
        alone = self._one_query(i, self.own(i, keys), n)
        energy = ((self.values - self.outputs[i]) ** 2).sum(axis=1)
        limit = self.outputs[i] - self.mean
        return np.asarray(alone.square(energy) + 2 * alone.mean() @ limit + limit @ limit)

    def _one_query(
        self, query: int, own: OwnKeys, n: NDArray[np.int64], alpha: Array | None = None
    ) -> OneQuery:
        centred = self.values - self.outputs[query]
        return OneQuery.of(self.scores[query], self.weights, centred, own, n, alpha)


def query_rows(size: int, most: int) -> NDArray[np.int64]:
    """Which tokens stand for all as queries: all of them, or a fixed shuffle's first ones."""
    return np.sort(np.random.default_rng(0).permutation(size)[:most])
