"""The error of the outputs' covariance over n Gaussian tokens: its bias, exactly, and its noise.

    E|Cov_n - Cov|_F^2 = |E Cov_n - Cov|_F^2 + (fluctuation)

The bias follows from the single-query law, E[Gamma_n Gamma_n' | z] = E[g^2] ee' + p (I - ee'). The
fluctuation is that of the projection on one token, raised by the factor that the projection of
the mean misses of the mean's exact error (docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.heads import Head
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.output_energy import mean_squared_energy
from attnlimit.theory.output_moments import OutputMoments
from attnlimit.theory.population_pairs import MeanError
from attnlimit.theory.projection import Projection
from attnlimit.tokens import Gaussian

_QUERIES = 4096
_RULE = 192
_TOKENS = 256
MOST_MISSED = 2.0
"""Largest factor by which the mean's exact pair term corrects a projection."""


@dataclass(frozen=True, eq=False)
class CovarianceError:
    """E|Cov_n - Cov|_F^2 for each n, its two parts, and the spread of the token rule."""

    n: NDArray[np.int64]
    mse: Array
    bias_square: Array
    fluctuation: Array
    numerical_error: Array


def covariance_error(
    head: Head, tokens: Gaussian, n: NDArray[np.int64], mean: MeanError
) -> CovarianceError:
    """Error of the outputs' covariance, given the exact error of their mean at the same n."""
    white = WhitenedHead.of(head, tokens)
    half = Gaussian(dim=tokens.dim).points(_QUERIES)
    tilts = white.tilts(np.concatenate([half, -half]))
    top = 1.2 * max(float(np.linalg.norm(tilts, axis=1).max()), 1e-6)
    moments = [OutputMoments.at(int(k), top, white.offset) for k in n]
    bias = _bias(white, tilts, moments, mean.mse)
    outputs = white.values @ np.stack([m.average(tilts) for m in moments]) @ white.values.T
    alone = [mean_squared_energy(white, tilts, int(k)) for k in n] - (outputs**2).sum(axis=(1, 2))
    alone -= common_part(white.values @ white.values.T, outputs, mean.mse)
    together, error = _together(head, tokens, n, mean.mse - mean.own_share)
    fluctuation = alone / n + together
    bias_square = (bias**2).sum(axis=(1, 2))
    return CovarianceError(n, bias_square + fluctuation, bias_square, fluctuation, error)


def _bias(
    white: WhitenedHead, tilts: Array, moments: list[OutputMoments], mean_mse: Array
) -> Array:
    """E Cov_n - Cov for each n, (len n, d_v, d_v); the mean's own spread taken as isotropic."""
    spread = mean_mse / max(float(np.trace(white.metric)), 1e-300)
    identity = np.eye(len(white.B))
    whitened = [m.average_shift(tilts) - s * identity for m, s in zip(moments, spread, strict=True)]
    return white.values @ np.stack(whitened) @ white.values.T


def common_part(gram: Array, outputs: Array, mean_mse: Array) -> Array:
    """What the spread of m_n adds to E|Gamma_n Gamma_n'|^2 and Cov_n leaves out again.

    With Gamma_n = m_n + rest, independent, m_n spread like the values' covariance `gram`:
    E|m|^4 + 2 E|rest|^2 E|m|^2 + 4 E<rest, m>^2, less the same terms of the mean's square.
    """
    spread = mean_mse / max(float(np.trace(gram)), 1e-300)
    common = spread[:, None, None] * gram
    rest = outputs - common
    total = np.trace(rest, axis1=1, axis2=2)
    cross = (rest * common).sum(axis=(1, 2))
    fourth = mean_mse**2 + (common**2).sum(axis=(1, 2))
    return fourth + 2 * total * mean_mse + 2 * cross


def _together(
    head: Head, tokens: Gaussian, n: NDArray[np.int64], mean_pair: Array
) -> tuple[Array, Array]:
    """How the outer products of two queries vary together, and its numerical error.

    That of the projection on a shared token, times what the mean's exact pair term has over its
    projection. Tokens are drawn as queries see them, from N(offset, I + B'B) whitened, and
    weighted back. Two independent rules of queries: their product is free of their own noise.
    """
    rules = [Projection.of(head, tokens, n, queries=_RULE, seed=seed) for seed in (0, 1)]
    points, weight = _seen_tokens(rules[0].white, tokens)
    means, covariances = zip(*(rule.moment_parts(points) for rule in rules), strict=True)
    energy = weight * _pair_energy(covariances[0], covariances[1], n)
    mean_energy = (weight * _pair_energy(means[0], means[1], n)).mean(axis=1)
    missed = np.ones(len(n))
    np.divide(mean_pair, mean_energy, out=missed, where=mean_energy > 0)
    missed = np.clip(missed, 1.0, MOST_MISSED)
    error = missed * energy.std(axis=1) / np.sqrt(len(points))
    return missed * np.maximum(energy.mean(axis=1), 0.0), error


def _seen_tokens(white: WhitenedHead, tokens: Gaussian) -> tuple[Array, Array]:
    """Tokens drawn with the density that the average query tilts them to, and their weights."""
    normals = Gaussian(dim=tokens.dim).points(_TOKENS, seed=2)
    spectrum, axes = np.linalg.eigh(np.eye(tokens.dim) + white.tilt_cov)
    seen = white.offset + (normals * np.sqrt(spectrum)) @ axes.T
    log_weight = ((normals**2).sum(axis=1) - (seen**2).sum(axis=1)) / 2
    log_weight += np.log(spectrum).sum() / 2
    return tokens.mean() + seen @ tokens.sqrt_cov(), np.exp(log_weight)


def _pair_energy(
    first: tuple[Array, Array], second: tuple[Array, Array], n: NDArray[np.int64]
) -> Array:
    """n |key part|^2 + 2 n <key part, query part> for each n and token, over two rules."""
    axes = tuple(range(2, first[0].ndim))
    crossed = (first[0] * second[1]).sum(axis=axes) + (second[0] * first[1]).sum(axis=axes)
    return n[:, None] * ((first[0] * second[0]).sum(axis=axes) + crossed)
