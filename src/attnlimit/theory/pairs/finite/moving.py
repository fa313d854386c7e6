"""How do squares of outputs behave about a centre that moves with the keys?

The centre is a = a sum over the n tokens, near their mean output. Gamma_n - a has Gamma_n's slots,
each with a Laplace integral, and slots of a, which have none; products are sorted by how many of
each they have (docs/theory/moments.md, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.theory.law.quadrature import PAIRS, Precision, alpha_grid, key_weights, log_phi
from attnlimit.theory.pairs.finite.square import Mixtures, Vectors
from attnlimit.theory.pairs.finite.tokens import Population

_FADED = -32.0  # natural logarithm of what does not count
_A = ("0", 1.0)


@dataclass(frozen=True, eq=False)
class MovingCentre:
    """Outputs of a population about a = sum over the n tokens of `vectors.a`, at one n."""

    population: Population
    vectors: Vectors
    n: int

    @staticmethod
    def of(population: Population, parts: Array, n: int) -> MovingCentre:
        """`parts` (N, c) are each token's part of a, which is near m_n - m."""
        values = population.values - population.mean
        return MovingCentre(population, Vectors.of(values, parts), n)

    def single(self, i: int, copies: int = 1) -> tuple[float, Array]:
        """E|Gamma_n(x_i) - m - a|^4 and its outer square (c, c); x_i is `copies` of the keys."""
        tokens = self.population.rows[[i] * copies]
        _, size, at, keys = self._line(i, tokens, PAIRS)
        p, minus = ("p", 0.0), ("p", -1.0)
        square = at.square
        alone, apart, settled = square(p, p, keys), square(p, _A, keys), square(_A, _A, keys)
        cubic = (square(p, ("p", 1.0), keys) - alone - apart) / 2  # |X|^2 (X.A)
        lengths = (alone + settled - square(("p", 1.0), minus, keys)) / 2  # |X|^2 |A|^2
        linear = (square(_A, ("p", 1.0), keys) - settled - apart) / 2  # (X.A) |A|^2
        fourth = float(size @ (alone / 6 - 2 * cubic + 2 * lengths + 4 * apart - 4 * linear))
        cross = at.outer(p, _A, keys)
        second = at.outer(p, p, keys) - cross - np.swapaxes(cross, 1, 2)
        nothing = self._nothing(tokens)
        whole = nothing.square(_A, _A, keys)
        second = np.tensordot(size, second, axes=1) + nothing.outer(_A, _A, keys)[0]
        return fourth + float(whole[0]), np.asarray(second)

    def pair(self, i: int, j: int, precision: Precision = PAIRS) -> float:
        """E ((Gamma_n(x_i) - m - a).(Gamma_n(x_j) - m - a))^2, both tokens among the n keys."""
        tokens = self.population.rows[[i, j]]
        found = float(self._nothing(tokens).square(_A, _A, self.n - 2.0)[0])
        grids = []
        for k in (i, j):
            alpha, size, at, keys = self._line(k, tokens, precision)
            found += float(size @ (at.square(("p", -1.0), _A, keys) - at.square(_A, _A, keys)))
            grids.append(alpha)
        size, at = self._plane(i, j, tokens, grids)
        keys, x, y = self.n - 2.0, ("p", -1.0), ("q", -1.0)
        inside = at.square(x, y, keys) - at.square(x, _A, keys) - at.square(y, _A, keys)
        return found + float(size @ (inside + at.square(_A, _A, keys)))

    def _known(self, tokens: NDArray[np.int64]) -> Array:
        return np.asarray(self.vectors.a[tokens].sum(axis=0)[None])

    def _nothing(self, tokens: NDArray[np.int64]) -> Mixtures:
        """The keys as they are, without any query."""
        return Mixtures.of(
            self.vectors, self.population.weights[None], {}, {"0": self._known(tokens)}
        )

    def _line(
        self, i: int, tokens: NDArray[np.int64], precision: Precision
    ) -> tuple[Array, Array, Mixtures, float]:
        """Grid of one query, weights of its points, keys there, and how many are not known."""
        scores, weights = self.population.scores[i], self.population.weights
        alpha = alpha_grid(scores, weights, np.array([self.n]), precision, scores[tokens])
        keys = float(self.n - len(tokens))
        w, own = (key_weights(s - alpha[:, None]) for s in (scores, scores[tokens]))
        mass = log_phi(-np.expm1(-w) @ weights)
        log_size = keys * mass - own.sum(axis=1)
        near = log_size > _FADED
        law = np.exp(-w - mass[:, None])[near] * weights
        known = {"p": own[near] @ self.vectors.v[tokens], "0": self._known(tokens)}
        at = Mixtures.of(self.vectors, law, {"p": w[near]}, known)
        return alpha, (_steps(alpha) * np.exp(log_size))[near], at, keys

    def _plane(
        self, i: int, j: int, tokens: NDArray[np.int64], grids: list[Array]
    ) -> tuple[Array, Mixtures]:
        """Weights of the points of the grid of two queries, and the keys there."""
        scores, weights = self.population.scores[[i, j]], self.population.weights
        w, v = (key_weights(s - a[:, None]) for s, a in zip(scores, grids, strict=True))
        own, other = (
            key_weights(s[tokens] - a[:, None]) for s, a in zip(scores, grids, strict=True)
        )
        missed = (-np.expm1(-w) @ weights)[:, None] - (np.exp(-w) * weights) @ np.expm1(-v).T
        mass = log_phi(missed)
        log_size = (self.n - 2.0) * mass - own.sum(axis=1)[:, None] - other.sum(axis=1)
        row, column = np.nonzero(log_size > _FADED)
        p, q, mass = w[row], v[column], mass[row, column]
        law = np.exp(-p - q - mass[:, None]) * weights
        values = self.vectors.v[tokens]
        known = {"p": own[row] @ values, "q": other[column] @ values, "0": self._known(tokens)}
        area = _steps(grids[0])[row] * _steps(grids[1])[column]
        at = Mixtures.of(self.vectors, law, {"p": p, "q": q}, known)
        return area * np.exp(log_size[row, column]), at


def _steps(alpha: Array) -> Array:
    """Weights of a sum over alpha that goes on past its end as e^{-alpha}."""
    step = float(alpha[1] - alpha[0])
    weights = np.full(len(alpha), step)
    weights[-1] += step / np.expm1(step)
    return weights
