"""What does one more token do to the queries of a population? Its first-order response, exactly.

Given that one of the n keys is token k, the expected output of query i moves by h_i(k), an integral
of the single-query law. The covariance of two outputs is (n - 2) E[h_i . h_j] to first order, and
the average of that over all pairs of queries is a plain sum: |average of h|^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.pairs.finite.tokens import Population


@dataclass(frozen=True, eq=False)
class Responses:
    """The response of every query, in sums that need no array of queries by keys by values.

    `moved` is the average response to each token, and `itself` a query's response to its own.
    """

    n: NDArray[np.int64]
    population: Population
    means: Array  # (len n, R, c): E Gamma_n(x_i) - m, the token itself among the keys
    squares: Array  # (len n, R): E|Gamma_n(x_i) - m|^2
    twice: Array  # (len n, R): the same where the token is among the keys twice, if it can be
    moved: Array  # (len n, N, c)
    itself: Array  # (len n, R, c)
    energy: Array  # (len n, R): sum over keys of their probability times |h_i|^2

    @staticmethod
    def of(population: Population, n: NDArray[np.int64]) -> Responses:
        """Go through the queries once."""
        rows, share = population.rows, population.share
        shape = len(n), len(rows)
        size = population.values.shape[1]
        means, itself = np.empty((*shape, size)), np.empty((*shape, size))
        squares, twice, energy = (np.zeros(shape) for _ in range(3))
        moved = np.zeros((len(n), *population.values.shape))
        for i, row in enumerate(rows):
            means[:, i], squares[:, i], h = population.response(i, n)
            if population.repeats:
                twice[:, i] = population.squared(i, rows[[i, i]], n)
            moved += share[i] * h
            itself[:, i] = h[:, row]
            energy[:, i] = (h**2).sum(axis=2) @ population.weights
        return Responses(n, population, means, squares, twice, moved, itself, energy)

    @property
    def sharing(self) -> Array:
        """What the average product of two responses counts for, for each n."""
        return self.population.sharing(self.n)

    def spread(self) -> Array:
        """Variance of each query's output, (len n, R)."""
        return self.squares - (self.means**2).sum(axis=2)

    def average(self) -> Array:
        """Average of `pair` over two independent queries, the same one twice included, by n."""
        share, rows = self.population.share, self.population.rows
        centre = share @ self.means
        as_keys = (self.means * self.moved[:, rows]).sum(axis=2) @ share
        shared = (self.moved**2).sum(axis=2) @ self.population.weights
        return np.asarray((centre**2).sum(axis=1) + 2 * as_keys + self.sharing * shared)

    def with_itself(self) -> Array:
        """`pair` of each query with itself, (len n, R)."""
        own = (self.means * (self.means + 2 * self.itself)).sum(axis=2)
        return np.asarray(own + self.sharing[:, None] * self.energy)

    def pair(self, i: int, j: int) -> Array:
        """E[(Gamma_n(x_i) - m).(Gamma_n(x_j) - m)] to first order in the response, for each n."""
        (one, _, h), (other, _, g) = (self.population.response(k, self.n) for k in (i, j))
        row, column = self.population.rows[[i, j]]
        as_keys = (one * g[:, row] + other * h[:, column]).sum(axis=1)
        shared = (h * g).sum(axis=2) @ self.population.weights
        return np.asarray((one * other).sum(axis=1) + as_keys + self.sharing * shared)
