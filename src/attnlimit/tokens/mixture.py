"""Mixtures of any of the other measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag
from scipy.special import logsumexp, softmax

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, UnboundedSupport
from attnlimit.tokens.base import Tail, Tokens, heaviest
from attnlimit.tokens.score_law import ScoreLaw

Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Mixture(Tokens):
    """A token is drawn from one of `components`, chosen with probabilities `weights`.

    Examples
    --------
    >>> import attnlimit as al
    >>> two = al.Mixture([0.5, 0.5], [al.Gaussian(dim=1), al.Sphere(1)])
    >>> two.tilted_mean([0.0])
    array([0.])
    """

    def __init__(self, weights: ArrayLike, components: Sequence[Tokens]) -> None:
        if not isinstance(components, Sequence) or not components:
            raise BadInput(f"components must be a list of token measures, got {components!r}.")
        self.components = tuple(components)
        if not all(isinstance(component, Tokens) for component in self.components):
            raise BadInput("components must be token measures, such as Gaussian(dim=3).")
        dims = sorted({component.dim for component in self.components})
        if len(dims) > 1:
            raise BadInput(f"components must share one dimension, got {dims}.")
        self.dim = dims[0]
        self.weights = checks.mixture_weights(weights, len(self.components), "weights")
        if not (self.weights > 0).all():
            raise BadInput("weights must be positive; leave out components of weight zero.")
        self._log_weights = np.log(self.weights)

    def parts(self) -> tuple[tuple[float, Tokens], ...]:
        """The components that occur, mixtures among them taken apart."""
        pairs = zip(self.weights.tolist(), self.components, strict=True)
        return tuple((w * share, part) for w, c in pairs for share, part in c.parts())

    @property
    def tail(self) -> Tail:
        return heaviest(part.tail for _, part in self.parts())

    @property
    def symmetric(self) -> bool:
        return all(part.symmetric for _, part in self.parts())

    def reach(self, matrix: Array) -> float:
        centre = self.mean()
        return max(
            float(np.linalg.norm(matrix @ (part.mean() - centre))) + part.reach(matrix)
            for _, part in self.parts()
        )

    def cgf(self, t: ArrayLike) -> Array:
        return np.asarray(logsumexp(self._log_masses(self._tilt(t)), axis=0))

    def tilted_mean(self, t: ArrayLike) -> Array:
        t = self._tilt(t)
        return np.einsum("k...,k...d->...d", self._shares(t), self._means(t))

    def tilted_cov(self, t: ArrayLike) -> Array:
        t = self._tilt(t)
        shares, means = self._shares(t), self._means(t)
        shifts = means - np.einsum("k...,k...d->...d", shares, means)
        covs = np.stack([component.tilted_cov(t) for component in self.components])
        covs = covs + shifts[..., :, None] * shifts[..., None, :]
        return np.einsum("k...,k...de->...de", shares, covs)

    def extreme(self, u: ArrayLike) -> Array:
        u = self._direction(u)
        try:
            furthest = np.stack([part.extreme(u) for _, part in self.parts()])
        except UnboundedSupport as error:
            raise UnboundedSupport(f"the mixture has an unbounded component: {error}") from None
        best = (furthest * u).sum(axis=-1).argmax(axis=0)
        return np.take_along_axis(furthest, best[None, ..., None], axis=0)[0]

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        label = rng.choice(len(self.components), n, p=self.weights)
        return self._chosen(label, lambda part, chosen: part.sample(int(chosen.sum()), rng))

    @property
    def transport_dim(self) -> int:
        return 1 + max(component.transport_dim for component in self.components)

    def transport(self, uniforms: Array) -> Array:
        edges = np.cumsum(self.weights)
        label = np.searchsorted(edges / edges[-1], uniforms[:, 0], side="right")
        return self._chosen(
            np.minimum(label, len(edges) - 1),
            lambda part, chosen: part.transport(uniforms[chosen, 1 : 1 + part.transport_dim]),
        )

    def _chosen(self, label: Labels, make: Callable[[Tokens, Mask], Array]) -> Array:
        """Tokens, each made by the component that its label says."""
        tokens = np.empty((len(label), self.dim))
        for k in np.unique(label):
            tokens[label == k] = make(self.components[k], label == k)
        return tokens

    def score_law(self, t: Array) -> ScoreLaw | None:
        laws = [component.score_law(t) for component in self.components]
        known = [law for law in laws if law is not None]
        if len(known) < len(laws):
            return None
        shares = zip(self.weights, known, strict=True)
        return ScoreLaw.build(
            score=np.concatenate([law.score for law in known]),
            weight=np.concatenate([share * law.weight for share, law in shares]),
            coefficients=block_diag(*[law.coefficients for law in known]),
            basis=np.concatenate([law.basis for law in known]),
            spread=block_diag(*[law.spread for law in known]),
            spread_cov=np.concatenate([law.spread_cov for law in known]),
        )

    def _log_masses(self, t: Array) -> Array:
        cgfs = np.stack([component.cgf(t) for component in self.components])
        return cgfs + self._log_weights.reshape(-1, *[1] * (cgfs.ndim - 1))

    def _shares(self, t: Array) -> Array:
        return np.asarray(softmax(self._log_masses(t), axis=0))

    def _means(self, t: Array) -> Array:
        return np.stack([component.tilted_mean(t) for component in self.components])

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{w:.3g}: {c!r}" for w, c in zip(self.weights, self.components, strict=True)
        )
        return f"Mixture({inside})"
