"""Which functions of the tokens alone move with the mean output? They cut its Monte Carlo noise.

The mean output is, to first order, a sum over tokens of the projection h(y) (docs/montecarlo.md).
Its terms are the limit output at y, the value of y, and the value of y weighted by how many queries
look that way; their best combination is found from the draws themselves, one for each n. The
expectation of their squares is known, so that subtracting what they explain leaves no bias.

A weight that grows fast is a good control of an average over many tokens and a bad one over few,
where a single rare token decides: each feature says from how many tokens on it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import chi2
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.limit import limit
from attnlimit.tokens import GaussianForm, Tokens
from attnlimit.tokens.root import symmetric_root

Mask = NDArray[np.bool_]

POINTS = 1 << 15
# A feature is used where the largest of that many times n tokens makes at most this share of the
# variance of its sum over n.
RARE = 1000
LARGEST_SHARE = 1.0
UNSURE = 1e-3
"""Share of a feature's variance over n tokens that the square of what its mean is off may have."""


@dataclass(frozen=True)
class GaussianFeatures:
    """Features exp(<a_j, z^2> / 2) M_j (y - m), z the whitened token along the head's key axes.

    a = 0 gives the limit output and the value; a = tau b^2 / (1 + b^2), with b the singular values
    of the whitened score matrix, the attention that the token receives, with a tau that keeps four
    moments finite past the horizon 1. The scalar features, controls of the covariance, are these
    weights alone and times the squared length of the value, plain and in the metric of the limit's
    covariance. All expectations are Gaussian integrals, in closed form.
    """

    mean: Tensor
    whiten: Tensor
    exponents: Tensor
    maps: Tensor
    sizes: Array  # squared lengths of M_j along each axis
    lengths: Tensor
    gram: Array
    scalar_means: Array
    scalar_variances: Array

    def steady(self, n: int) -> tuple[Mask, Mask]:
        """Which features, (J,) and (Z,), no single one of n tokens can be expected to decide.

        Judged at rare tokens: on each axis, and all around.
        """
        dim = len(self.exponents)
        rare = 1 / (RARE * n)
        squares = np.ones((dim + 1, dim))
        squares[range(dim), range(dim)] = chi2.isf(rare, 1)
        squares[dim] = chi2.isf(rare, dim) / dim
        weights = np.exp(squares @ self.exponents.double().numpy() / 2)
        sizes = squares @ self.sizes.T
        largest = (weights**2 * sizes).max(axis=0)
        lengths = squares @ np.diagonal(self.lengths.double().numpy(), axis1=1, axis2=2).T
        products = weights[:, 1:, None] * lengths[:, None, :]
        scalars = np.concatenate([products.reshape(dim + 1, -1), weights[:, 2:]], axis=1)
        departures = ((scalars - self.scalar_means) ** 2).max(axis=0)
        share = LARGEST_SHARE * n
        return largest <= share * np.diag(self.gram), departures <= share * self.scalar_variances

    def sums(self, keys: Tensor, sets: int = 1) -> tuple[Tensor, Tensor]:
        """Sum the features over tokens (B, S, d): (B, J, d_v) and scalars (B, Z), in float64.

        Draw by draw, `sets` of them: a product of matrices of another shape may differ in its last
        bit.
        """
        vectors, scalars = zip(*map(self._sums, keys.split(sets)), strict=True)
        return torch.cat(vectors), torch.cat(scalars)

    def _sums(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        centred = keys - self.mean
        coordinates = centred @ self.whiten
        weights = torch.exp(coordinates**2 @ self.exponents / 2)
        weighted = weights.double().mT @ centred.double()
        vectors = (self.maps @ weighted[..., None])[..., 0]
        squares = torch.stack(
            [((coordinates @ metric) * coordinates).sum(-1) for metric in self.lengths], dim=-1
        )
        distinct = weights[..., 1:].double()
        products = distinct.mT @ squares.double()
        return vectors, torch.cat([products.flatten(1), distinct[..., 1:].sum(1)], dim=1)


@dataclass(frozen=True)
class GenericFeatures:
    """The limit output, the value, and the value weighted by the token's exposure to queries.

    Second moments and means are averages over quasi-random tokens; but all features are odd, so
    that over symmetric tokens means are zero.
    """

    head: Head
    tokens: Tokens
    exposure: Array
    scale: tuple[float, float]
    centre: Array
    gram: Array
    largest: Array
    off: Array  # squared length of what a mean may be off
    scalar_means: Array

    def steady(self, n: int) -> tuple[Mask, Mask]:
        """Which features can be used at n, judged at the largest of many tokens.

        Nor may what their means are off show over n tokens.
        """
        size = np.diag(self.gram)
        used = (self.largest <= LARGEST_SHARE * n * size) & (n * self.off <= UNSURE * size)
        return used, np.ones(0, dtype=bool)

    def sums(self, keys: Tensor, sets: int = 1) -> tuple[Tensor, Tensor]:
        """Sum the features over tokens, draw by draw; there are no scalar ones."""
        size = keys.shape[1]
        rows = []
        for block in keys.double().split(sets):
            table = self.values(block.flatten(0, 1).numpy())
            rows.append(table.reshape(sets, size, *table.shape[1:]).sum(axis=1))
        vectors = torch.from_numpy(np.concatenate(rows) - size * self.centre)
        return vectors, vectors.new_zeros((len(vectors), 0))

    def values(self, tokens: Array) -> Array:
        """Every feature of every token, uncentred: (n, J, d_v)."""
        exposed = ((tokens @ self.exposure) ** 2).sum(axis=1)
        standard = np.clip((exposed - self.scale[0]) / self.scale[1], -4, 4)[:, None]
        value = tokens @ self.head.V.T
        limits = limit(self.head, self.tokens)(tokens)
        return np.stack([limits, value, standard * value, standard**2 * value], axis=1)


TokenFeatures = GaussianFeatures | GenericFeatures
"""Centred vector functions of one token, in output space, with E <f_j, f_k> as their `gram`."""


def token_features(head: Head, tokens: Tokens) -> TokenFeatures:
    """Return the control features of a head with these tokens."""
    if isinstance(tokens.form, GaussianForm):
        return _gaussian(head, tokens)
    return _generic(head, tokens)


def _gaussian(head: Head, tokens: Tokens) -> GaussianFeatures:
    root = tokens.sqrt_cov()
    _, strengths, axes = np.linalg.svd(root @ head.A.T @ root)
    received = strengths**2 / (1 + strengths**2)
    full = min(1.0, 0.22 / max(received.max(), 1e-300))
    radial = min(0.2, 0.5 / np.sqrt(tokens.dim))
    exponents = [0 * received, 0 * received, full * received, 0.3 * full * received]
    exponents.append(np.full(tokens.dim, radial))
    frame = root @ axes.T  # a token is mean + frame z
    back = np.linalg.pinv(frame)
    value = head.V @ frame
    damped = value / (1 + strengths**2)
    linear = head.V @ tokens.cov() @ head.A @ frame
    in_frame = [linear, value, damped, damped, value]
    gram = np.empty((len(in_frame), len(in_frame)))
    for j, first in enumerate(in_frame):
        for k, second in enumerate(in_frame):
            left = 1 - exponents[j] - exponents[k]
            gram[j, k] = ((first * second).sum(axis=0) / left).sum() / np.sqrt(left).prod()
    lengths = [value.T @ linear @ linear.T @ value, value.T @ value]
    moments = [_scalar_moments(a, metric) for a in exponents[1:] for metric in lengths]
    moments += [_scalar_moments(a, None) for a in exponents[2:]]
    first, second = np.array(moments).T
    return GaussianFeatures(
        torch.from_numpy(tokens.mean()).float(),
        torch.from_numpy(back.T.copy()).float(),
        torch.from_numpy(np.stack(exponents, axis=1)).float(),
        torch.from_numpy(np.stack([matrix @ back for matrix in in_frame])),
        np.stack([(matrix**2).sum(axis=0) for matrix in in_frame]),
        torch.from_numpy(np.stack(lengths)).float(),
        gram,
        first,
        second - first**2,
    )


def _scalar_moments(exponent: Array, metric: Array | None) -> tuple[float, float]:
    """E f and E f^2 of f = exp(<a, z^2> / 2) z'Lz, or of the weight alone."""
    first, second = (1 / np.sqrt(1 - k * exponent).prod() for k in (1, 2))
    if metric is None:
        return first, second
    once, twice = 1 / (1 - exponent), 1 / (1 - 2 * exponent)
    first *= (np.diag(metric) * once).sum()
    spread = (metric**2 * np.outer(twice, twice)).sum()
    return first, second * ((np.diag(metric) * twice).sum() ** 2 + 2 * spread)


def _generic(head: Head, tokens: Tokens) -> GenericFeatures:
    points = tokens.points(POINTS)
    exposure = head.A @ symmetric_root(points.T @ points / len(points))
    exposed = ((points @ exposure) ** 2).sum(axis=1)
    scale = (float(exposed.mean()), float(max(exposed.std(), 1e-300)))
    none = np.zeros(0)
    features = GenericFeatures(head, tokens, exposure, scale, none, none, none, none, none)
    table = features.values(points)
    halves = table.reshape(2, -1, *table.shape[1:]).mean(axis=1)
    if tokens.symmetric:
        halves = 0 * halves
    centre, off = halves.mean(axis=0), ((halves[0] - halves[1]) ** 2).sum(axis=1) / 4
    table = table - centre
    gram = np.einsum("njv,nkv->jk", table, table) / len(table)
    largest = (table**2).sum(axis=2).max(axis=0)
    return GenericFeatures(head, tokens, exposure, scale, centre, gram, largest, off, none)
