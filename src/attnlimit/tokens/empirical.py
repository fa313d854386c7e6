"""Finitely many tokens, such as those of a document, and tokens given by a function that draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, UnboundedSupport
from attnlimit.tokens.base import BOUNDED, UNKNOWN, Tail, Tokens
from attnlimit.tokens.score_law import ScoreLaw


class Empirical(Tokens):
    """The measure that puts `weights` (uniform by default) on the rows of `points`.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Empirical([[0.0], [1.0]]).tilted_mean([0.0])
    array([0.5])
    """

    def __init__(self, points: ArrayLike, weights: ArrayLike | None = None) -> None:
        self.locations = checks.real_array(points, "points", ndim=2)
        if self.locations.size == 0:
            raise BadInput(f"points are empty, of shape {self.locations.shape}; give at least one.")
        size, self.dim = self.locations.shape
        if weights is None:
            self.weights = np.full(size, 1 / size)
        else:
            self.weights = checks.mixture_weights(weights, size, "weights")
        with np.errstate(divide="ignore"):
            self._log_weights = np.log(self.weights)

    def cgf(self, t: ArrayLike) -> Array:
        return np.asarray(logsumexp(self._scores(t), axis=-1))

    def tilted_mean(self, t: ArrayLike) -> Array:
        return self._tilted_weights(t) @ self.locations

    def tilted_cov(self, t: ArrayLike) -> Array:
        weights = self._tilted_weights(t)
        centred = self.locations - (weights @ self.locations)[..., None, :]
        return np.swapaxes(centred * weights[..., None], -1, -2) @ centred

    def extreme(self, u: ArrayLike) -> Array:
        scores = self._direction(u) @ self.locations.T
        scores = np.where(self.weights > 0, scores, -np.inf)
        return self.locations[scores.argmax(axis=-1)]

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        return self.locations[rng.choice(len(self.weights), n, p=self.weights)]

    @property
    def transport_dim(self) -> int:
        return 1

    def transport(self, uniforms: Array) -> Array:
        edges = np.cumsum(self.weights)
        index = np.searchsorted(edges / edges[-1], uniforms[:, 0], side="right")
        return self.locations[np.minimum(index, len(edges) - 1)]

    def atoms(self) -> tuple[Array, Array]:
        return self.locations, self.weights

    def reach(self, matrix: Array) -> float:
        present = self.locations[self.weights > 0] - self.mean()
        return float(np.linalg.norm(present @ matrix.T, axis=1).max())

    def score_law(self, t: Array) -> ScoreLaw:
        present = self.weights > 0
        points = self.locations[present]
        return ScoreLaw.build(points @ t, self.weights[present], points, np.eye(self.dim))

    def _scores(self, t: ArrayLike) -> Array:
        return self._tilt(t) @ self.locations.T + self._log_weights

    def _tilted_weights(self, t: ArrayLike) -> Array:
        return np.asarray(softmax(self._scores(t), axis=-1))

    def __repr__(self) -> str:
        return f"Empirical(size={len(self.weights)}, dim={self.dim})"


_LEAST_EFFECTIVE = 100.0


def from_sampler(
    draw: Callable[[int, np.random.Generator], ArrayLike],
    dim: int | None = None,
    *,
    bounded: bool = False,
    reference: int = 1 << 16,
    seed: int = 0,
) -> Tokens:
    """Tokens of a distribution that is known only as a function that draws from it.

    Parameters
    ----------
    draw : callable
        `draw(n, rng)` returns n independent tokens, of shape (n, dim).
    dim : int, optional
        By default that of one draw.
    bounded : bool
        Whether the support is known to be bounded. Otherwise the tail counts as unknown, and laws
        that need it (rates, curves over queries) refuse; single queries of your own are allowed.
    reference : int
        Draws from which the CGF and its derivatives are estimated. A query that fewer than 100 of
        them effectively represent is refused.
    seed : int
        Of the reference draws.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> square = al.from_sampler(lambda n, rng: rng.uniform(-1, 1, (n, 2)), bounded=True)
    >>> al.limit(al.Head(np.eye(2)), square)([2.0, 0.0]).round(1)  # al.Cube(2): coth 2 - 1/2
    array([0.5, 0. ])
    """
    return _FromSampler(draw, dim, bounded, reference, seed)


class _FromSampler(Tokens):
    """A distribution by its draws; expectations are averages over the reference draws."""

    def __init__(
        self,
        draw: Callable[[int, np.random.Generator], ArrayLike],
        dim: int | None,
        bounded: bool,
        reference: int,
        seed: int,
    ) -> None:
        if not callable(draw):
            raise BadInput(f"draw must be a function draw(n, rng), got {type(draw).__name__}.")
        if dim is None:
            first = checks.real_array(draw(1, np.random.default_rng(0)), "draw(1, rng)", ndim=2)
            dim = first.shape[1]
        self.dim = checks.count(dim, "dim")
        self._function, self._bounded = draw, bool(bounded)
        count = checks.count(reference, "reference", smallest=2)
        self._reference = self.sample(count, checks.count(seed, "seed", smallest=0))

    @property
    def tail(self) -> Tail:
        return BOUNDED if self._bounded else UNKNOWN

    def cgf(self, t: ArrayLike) -> Array:
        scores = self._tilt(t) @ self._reference.T
        self._weights(scores)
        top = scores.max(axis=-1, keepdims=True)
        return np.asarray(np.log(np.exp(scores - top).mean(axis=-1)) + top[..., 0])

    def tilted_mean(self, t: ArrayLike) -> Array:
        return self._weights(self._tilt(t) @ self._reference.T) @ self._reference

    def tilted_cov(self, t: ArrayLike) -> Array:
        weights = self._weights(self._tilt(t) @ self._reference.T)
        mean = weights @ self._reference
        flat = weights.reshape(-1, len(self._reference))
        second = np.stack([(self._reference.T * row) @ self._reference for row in flat])
        second = second.reshape(*mean.shape, self.dim)
        return np.asarray(second - mean[..., :, None] * mean[..., None, :])

    def _weights(self, scores: Array) -> Array:
        weights = np.asarray(softmax(scores, axis=-1))
        effective = 1 / (weights**2).sum(axis=-1)
        least = float(np.min(effective, initial=np.inf))
        needed = min(_LEAST_EFFECTIVE, len(self._reference) / 2)
        if least < needed:
            raise BadInput(
                f"only {least:.3g} of {len(self._reference)} reference tokens carry the weight at "
                "a query: its limit is not known; give from_sampler a larger reference."
            )
        return weights

    def extreme(self, u: ArrayLike) -> Array:
        self._direction(u)
        raise UnboundedSupport(
            "the furthest point of tokens given by a function is not known; override extreme."
        )

    @property
    def transport_dim(self) -> int:
        return 1

    def transport(self, uniforms: Array) -> Array:
        index = (uniforms[:, 0] * len(self._reference)).astype(np.int64)
        return self._reference[np.minimum(index, len(self._reference) - 1)]

    def points(self, count: int, seed: int = 0) -> Array:
        """`count` draws, the same ones every time: quasi-random points need a transport map."""
        return self._draw(count, np.random.default_rng([seed, 1]))

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        drawn = checks.real_array(self._function(n, rng), "what draw(n, rng) returned")
        if drawn.shape != (n, self.dim):
            raise BadInput(
                f"draw(n, rng) must return shape {(n, self.dim)}, but it returned {drawn.shape}."
            )
        return drawn

    def __repr__(self) -> str:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return f"from_sampler({name}, dim={self.dim})"
