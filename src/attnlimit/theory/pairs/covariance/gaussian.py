"""The error of the outputs' covariance over n Gaussian tokens: its bias, exactly, and its noise.

    E|Cov_n - Cov|_F^2 = |E Cov_n - Cov|_F^2 + (fluctuation)

The bias follows from the single-query law, E[Gamma_n Gamma_n' | z] = E[g^2] ee' + p (I - ee'). The
fluctuation is that of the projection on one token, raised by the factor that the projection of
the mean misses of the mean's exact error (docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead, covariance_influence, mean_covariance
from attnlimit.theory.pairs.covariance.output_energy import mean_squared_energy
from attnlimit.theory.pairs.covariance.output_moments import OutputMoments
from attnlimit.theory.pairs.covariance.projection import Projection
from attnlimit.theory.pairs.error import MeanError
from attnlimit.tokens import Tokens
from attnlimit.tokens.gaussian import normal_rule

_QUERIES = 2048
_RULE = 128
_TOKENS = 192
_BLOCK_NUMBERS = 60_000  # memory: tokens at a time times the size of an output's square
_DELTA_TOKENS = 512
_SETTLED = 0.02  # the mean's error is within this of its central limit
_MOST_MISSED = 2.0  # largest factor by which the mean's exact pair term corrects a projection


@dataclass(frozen=True, eq=False)
class CovarianceError:
    """E|Cov_n - Cov|_F^2 for each n, its two parts, and the spread of the token rule."""

    n: NDArray[np.int64]
    mse: Array
    bias_square: Array
    fluctuation: Array
    numerical_error: Array


def covariance_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64], mean: MeanError
) -> CovarianceError:
    """Error of the outputs' covariance, given the exact error of their mean at the same n."""
    white = WhitenedHead.of(head, tokens)
    half = normal_rule(tokens.dim, _QUERIES, 0)
    tilts = white.tilts(np.concatenate([half, -half]))
    top = 1.2 * max(float(np.linalg.norm(tilts, axis=1).max()), 1e-6)
    moments = OutputMoments.at(n, top, white.offset)
    # E Cov_n - Cov for each n, (len n, d_v, d_v); the mean's own spread taken as isotropic.
    isotropic = (mean.mse / max(float(np.trace(white.metric)), 1e-300))[:, None, None]
    shift = np.stack([m.average_shift(tilts) for m in moments]) - isotropic * np.eye(len(white.B))
    bias = white.values @ shift @ white.values.T
    bias_square = (bias**2).sum(axis=(1, 2))
    settled = n * mean.mse / np.trace(mean_covariance(head, tokens))
    if (np.abs(settled - 1) < _SETTLED).all():
        fluctuation, error = _delta_fluctuation(head, tokens, white, n)
        return CovarianceError(n, bias_square + fluctuation, bias_square, fluctuation, error)
    outputs = white.values @ np.stack([m.average(tilts) for m in moments]) @ white.values.T
    alone = [mean_squared_energy(white, tilts, int(k)) for k in n] - (outputs**2).sum(axis=(1, 2))
    alone -= common_part(white.values @ white.values.T, outputs, mean.mse)
    together, error = _together(head, tokens, white, outputs, moments, mean)
    fluctuation = alone / n + together
    return CovarianceError(n, bias_square + fluctuation, bias_square, fluctuation, error)


def _delta_fluctuation(
    head: Head, tokens: Tokens, white: WhitenedHead, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """E|psi_S|_F^2 / n, where the mean has reached its central limit; and its error."""
    seen, weight = _seen_tokens(white, _DELTA_TOKENS)
    response = covariance_influence(head, tokens, tokens.mean() + seen @ tokens.sqrt_cov())
    energy = weight * (response**2).sum(axis=(1, 2))
    return energy.mean() / n, energy.std() / np.sqrt(len(energy)) / n


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


def missed_factor(mean: MeanError, projected: Array) -> Array:
    """What the mean's exact pair term has over its projection, for each n: at least one."""
    missed = np.ones(len(projected))
    np.divide(mean.mse - mean.own_share, projected, out=missed, where=projected > 0)
    return np.clip(missed, 1.0, _MOST_MISSED)


def _together(
    head: Head,
    tokens: Tokens,
    white: WhitenedHead,
    typical: Array,
    moments: tuple[OutputMoments, ...],
    mean: MeanError,
) -> tuple[Array, Array]:
    """How the outer products of two queries vary together at each n, and its numerical error.

    That of the projection on a shared token, times what the mean's exact pair term has over its
    projection. Tokens are drawn as queries see them, from N(offset, I + B'B) whitened, and
    weighted back. Two independent rules of queries: their product is free of their own noise.
    """
    n = mean.n
    rules = [Projection.of(head, tokens, n, queries=_RULE, seed=seed) for seed in (0, 1)]
    seen, weight = _seen_tokens(white, _TOKENS)
    of_mean = mean.mse / n / max(float(np.trace(white.metric)), 1e-300)
    mean_square = of_mean[:, None, None] * (white.values @ white.values.T)

    def energies(g: Array) -> tuple[Array, Array]:
        """For each n and token: n (<K, K'> + <K + K', Q>), of the covariance and of the mean."""
        b = white.tilts(g)
        own = rules[0].mean_as_query(g)
        means, squares = zip(*(rule.as_key(g, squares=True) for rule in rules), strict=True)
        # Cov_n leaves out m_n m_n', of which a token carries the square of its part.
        keys = []
        for m, square in zip(means, squares, strict=True):
            part = m + own
            keys.append(square - part[..., :, None] * part[..., None, :] + mean_square[:, None])
        both = keys[0] + keys[1]
        asked = [o.inner(b, white.values, k) for o, k in zip(moments, both, strict=True)]
        asked -= (both * typical[:, None]).sum(axis=(2, 3))
        covariance = n[:, None] * (keys[0] * keys[1]).sum(axis=(2, 3)) + asked
        shared = (means[0] * means[1]).sum(axis=2) + ((means[0] + means[1]) * own).sum(axis=2)
        return covariance, n[:, None] * shared

    block = max(1, _BLOCK_NUMBERS // len(white.values) ** 2)
    blocks = np.array_split(seen, max(1, len(seen) // block))
    with ThreadPoolExecutor(2) as executor:
        found = list(executor.map(energies, blocks))
    energy, mean_energy = weight * np.concatenate(found, axis=2)
    missed = missed_factor(mean, mean_energy.mean(axis=1))
    error = missed * energy.std(axis=1) / np.sqrt(len(seen))
    return missed * np.maximum(energy.mean(axis=1), 0.0), error


def _seen_tokens(white: WhitenedHead, count: int) -> tuple[Array, Array]:
    """Whitened tokens with the density that the average query tilts them to, and weights."""
    normals = normal_rule(len(white.B), count, 2)
    spectrum, axes = np.linalg.eigh(np.eye(len(white.B)) + white.tilt_cov)
    seen = white.offset + (normals * np.sqrt(spectrum)) @ axes.T
    log_weight = ((normals**2).sum(axis=1) - (seen**2).sum(axis=1)) / 2
    return seen, np.exp(log_weight + np.log(spectrum).sum() / 2)
