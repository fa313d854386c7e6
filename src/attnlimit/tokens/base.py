"""Base class of token distributions, the forms they can have, and their tails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import qmc

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, UnboundedSupport
from attnlimit.tokens.score_law import ScoreLaw

Numbers = NDArray[np.inexact]


@dataclass(frozen=True)
class GaussianForm:
    """Normal tokens: their mean and covariance say the rest."""


@dataclass(frozen=True)
class SphericalForm:
    """Uniform on the sphere of `radius` in R^radial_dim, of which d coordinates are kept.

    With radial_dim = d the sphere itself, with d + 2 the ball.
    """

    radius: float
    radial_dim: int


@dataclass(frozen=True, eq=False)
class IndependentForm:
    """Independent coordinates of one symmetric law, which is that of these functions.

    `cgf`, `mean` and `var` are a coordinate's CGF and its derivatives, for complex arguments with a
    non-zero real part too. `reach` is the largest |coordinate| that matters. `edge` says how the
    law ends there, if it is one of two: "flat" (uniform in between) or "atom" (two points).
    """

    cgf: Callable[[Numbers], Numbers]
    mean: Callable[[Numbers], Numbers]
    var: Callable[[Numbers], Numbers]
    reach: float
    edge: Literal["flat", "atom"] | None = None


Form = GaussianForm | SphericalForm | IndependentForm


Kind = Literal["bounded", "sub-Gaussian", "exponential", "unknown"]
_HEAVIER = ("bounded", "sub-Gaussian", "exponential", "unknown")


@dataclass(frozen=True, eq=False)
class Tail:
    """What is known about a measure's tail.

    "sub-Gaussian": each Gaussian part is something bounded plus S^1/2 times a normal vector, with
    S^1/2 one of `roots`. "exponential": the CGF is infinite where a coordinate of t reaches `rate`,
    which is zero for tails that are heavier still.
    """

    kind: Kind
    roots: tuple[Array, ...] = ()
    rate: float = np.inf

    @property
    def has_limit(self) -> bool:
        """Whether the CGF is known to be finite everywhere."""
        return self.kind in ("bounded", "sub-Gaussian")


BOUNDED = Tail("bounded")
UNKNOWN = Tail("unknown")


def heaviest(tails: Iterable[Tail]) -> Tail:
    """The tail of a mixture: as heavy as its heaviest component's."""
    parts = tuple(tails)
    return Tail(
        max((part.kind for part in parts), key=_HEAVIER.index),
        tuple(root for part in parts for root in part.roots),
        min(part.rate for part in parts),
    )


def symmetric_root(matrix: Array) -> Array:
    """The symmetric root of a positive semi-definite matrix; rounding below zero counts as zero."""
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    return np.asarray((eigenvectors * np.sqrt(np.maximum(eigenvalues, 0))) @ eigenvectors.T)


class Tokens(ABC):
    """A probability measure on R^d that tokens are drawn from, independently.

    With K(t) = log E exp<t, y> its cumulant generating function (`cgf`), `tilted_mean` is its
    gradient and `tilted_cov` its Hessian: mean and covariance of the measure reweighted by
    exp<t, y>. All three take a `t` with any leading batch axes. A measure gives these, `extreme`,
    `transport` and `dim`; the rest follows from them or says that it is not known.
    """

    dim: int

    @abstractmethod
    def cgf(self, t: ArrayLike) -> Array:
        """K(t) = log E exp<t, y>; NoLimitError where it is infinite."""

    @abstractmethod
    def tilted_mean(self, t: ArrayLike) -> Array:
        """Gradient of the CGF at t: the infinite-token limit of attention with scores <t, y>."""

    @abstractmethod
    def tilted_cov(self, t: ArrayLike) -> Array:
        """Hessian of the CGF at t."""

    @abstractmethod
    def extreme(self, u: ArrayLike) -> Array:
        """The point of the support furthest along u; UnboundedSupport if there is none."""

    @abstractmethod
    def transport(self, uniforms: Array) -> Array:
        """Map points of the unit cube of R^transport_dim, one row each, to tokens."""

    @property
    def transport_dim(self) -> int:
        """How many uniform numbers make one token."""
        return self.dim

    def mean(self) -> Array:
        """Mean, of shape (d,)."""
        return self.tilted_mean(np.zeros(self.dim))

    def cov(self) -> Array:
        """Covariance, of shape (d, d)."""
        return self.tilted_cov(np.zeros(self.dim))

    def sqrt_cov(self) -> Array:
        """Symmetric square root of the covariance."""
        return symmetric_root(self.cov())

    @property
    def form(self) -> Form | None:
        """The form of the measure, if laws exist for it alone; None for any other."""
        return None

    @property
    def is_gaussian(self) -> bool:
        """Whether the tokens are normal, so that mean and covariance say the rest."""
        return isinstance(self.form, GaussianForm)

    @property
    def tail(self) -> Tail:
        """How far tokens stray; "bounded" if every axis has its extremes, else not known."""
        try:
            self._extent(np.eye(self.dim))
        except UnboundedSupport:
            return UNKNOWN
        return BOUNDED

    @property
    def symmetric(self) -> bool:
        """Whether y and -y are known to have the same law."""
        return False

    def atoms(self) -> tuple[Array, Array] | None:
        """Points (N, d) and weights of a finite population; None if it is not finite."""
        return None

    def parts(self) -> tuple[tuple[float, Tokens], ...]:
        """The measures that this is a mixture of, with their weights; itself, if it is none."""
        return ((1.0, self),)

    def score_law(self, t: Array) -> ScoreLaw | None:
        """Law of the score <t, y> with the token's moments given it; None if it is not known."""
        return None

    def reach(self, matrix: Array) -> float:
        """An upper bound of |matrix (y - mean)| over the support; UnboundedSupport if none."""
        rows = matrix[np.linalg.norm(matrix, axis=1) > 0]
        if len(rows) == 0:
            return 0.0
        box, furthest = self._extent(np.eye(self.dim)), self._extent(rows)
        return float(
            min(
                np.linalg.norm(box) * np.linalg.norm(matrix, 2),
                np.linalg.norm(matrix, axis=0) @ box,
                np.linalg.norm(furthest),
            )
        )

    def _extent(self, u: Array) -> Array:
        """Largest |<u, y - mean>| over the support, for each row of u."""
        ends = [((self.extreme(v) - self.mean()) * v).sum(axis=-1) for v in (u, -u)]
        return np.maximum(*ends)

    def sample(self, n: int, rng: np.random.Generator | int | None = None) -> Array:
        """Draw `n` tokens, of shape (n, d)."""
        return self._draw(checks.count(n, "n"), np.random.default_rng(rng))

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        return self.transport(rng.random((n, self.transport_dim)))

    def points(self, count: int, seed: int = 0) -> Array:
        """`count` quasi-random tokens (scrambled Sobol): the same ones every time."""
        sequence = qmc.Sobol(self.transport_dim, scramble=True, rng=np.random.default_rng(seed))
        uniforms = sequence.random_base2(int(np.ceil(np.log2(max(count, 2)))))[:count]
        return self.transport(np.clip(uniforms, 1e-12, 1 - 1e-12))

    def rule(self, count: int, seed: int = 0) -> tuple[Array, Array]:
        """Points and weights that stand for the measure: its atoms, or about `count` `points`.

        Every part of a mixture has an eighth of its even share at least, however rare it is.
        """
        atoms, parts = self.atoms(), self.parts()
        if atoms is not None:
            return atoms
        sizes = [max(round(count * w), count // (8 * len(parts)), 2) for w, _ in parts]
        points = [part.points(m, seed) for m, (_, part) in zip(sizes, parts, strict=True)]
        weights = [np.full(m, w / m) for m, (w, _) in zip(sizes, parts, strict=True)]
        return np.concatenate(points), np.concatenate(weights)

    def _tilt(self, t: ArrayLike) -> Array:
        return checks.vectors(t, self.dim, "t")

    def _direction(self, u: ArrayLike) -> Array:
        direction = checks.vectors(u, self.dim, "u")
        if not (np.linalg.norm(direction, axis=-1) > 0).all():
            raise BadInput("u must not be the zero vector: it is the direction to go furthest in.")
        return direction
