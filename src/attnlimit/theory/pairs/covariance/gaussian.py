"""The error of the outputs' covariance over n Gaussian tokens, E|Cov_n - Cov|_F^2.

    = |E Cov_n - Cov|_F^2 + (1/n) (one query's own variance) + (1 - 1/n) (two queries together),

less what the spread of m_n adds to the squares of both. The bias follows from the single-query law,
one query's variance from fourth moments, two queries' from the two-query law of squares. Where
attention is weak these nearly cancel; there the polynomial of `weak.py` is right, and each is
weighed by its own error (docs/theory/moments.md, covariance).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead, covariance_influence, mean_covariance
from attnlimit.theory.pairs.average import average_over_pairs, controlled_mean
from attnlimit.theory.pairs.covariance.error import (
    CovarianceError,
    mean_energy,
    mean_square,
    squared_bias,
    summed,
    two_queries,
    weighed,
)
from attnlimit.theory.pairs.covariance.output_energy import mean_squared_energy
from attnlimit.theory.pairs.covariance.output_moments import OutputMoments
from attnlimit.theory.pairs.covariance.own_query import own_gain
from attnlimit.theory.pairs.covariance.projection import Projection
from attnlimit.theory.pairs.covariance.square_law import square_moment
from attnlimit.theory.pairs.covariance.weak import WeakError
from attnlimit.theory.pairs.error import MeanError
from attnlimit.theory.pairs.gaussian import GaussianKeys
from attnlimit.theory.pairs.mean import query_pairs
from attnlimit.tokens import Tokens
from attnlimit.tokens.gaussian import normal_rule

_QUERIES = 2048
_RULE = 128
_TOKENS = 192
_OWN_TOKENS = 64  # a small part
_BLOCK_NUMBERS = 60_000  # memory: tokens at a time times the size of an output's square
_DELTA_TOKENS, _DELTA_NUMBERS = (512, 8192), 100_000  # fewest and most; memory
_PICKS = 96
_ENOUGH = 0.01  # relative error from which on the weak limit is enough by itself
_FAR_FROM_WEAK = 3.0  # variance of the scores past which the weak limit says nothing
_CENTRED = 1e-9
_SECOND_ORDER = 0.25  # of what own keys do to first order, and of the shape they give the bias
_MOST_MISSED = 2.0  # largest factor by which the mean's exact pair term corrects a projection


def covariance_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64], mean: MeanError
) -> CovarianceError:
    """Error of the outputs' covariance, given the exact error of their mean at the same n."""
    white = WhitenedHead.of(head, tokens)
    weak = _weak_error(head, tokens, white, n)
    if weak is None:
        return _strong_error(head, tokens, white, mean)
    if (weak.numerical_error <= _ENOUGH * weak.mse).all():
        return weak
    return weighed([weak, _strong_error(head, tokens, white, mean)])


def _weak_error(
    head: Head, tokens: Tokens, white: WhitenedHead, n: NDArray[np.int64]
) -> CovarianceError | None:
    """The limit of weak attention at finite n, times what strength adds for n to infinity.

    What strength and finite n do together is left out: the error says how much that may be. Nothing
    where the first order is infinite or queries are far from weak.
    """
    sharpness = float(np.trace(white.tilt_cov) + white.offset @ white.offset)
    if sharpness > _FAR_FROM_WEAK or not np.isfinite(mean_covariance(head, tokens)).all():
        return None
    limit = WeakError.of(white, n)
    if not limit.first_order > 0:
        nothing = np.zeros(len(n))
        return CovarianceError(n, nothing, nothing, nothing, nothing)
    count = int(np.clip(_DELTA_NUMBERS // len(white.values) ** 2, *_DELTA_TOKENS))
    seen, weight = _seen_tokens(white, count)
    response = covariance_influence(head, tokens, tokens.mean() + seen @ tokens.sqrt_cov())
    energy = (weight * (response**2).sum(axis=(1, 2)))[:, None]
    control = (weight * limit.influence(seen))[:, None]
    even = np.full(len(seen), 1 / len(seen))
    found, spread = controlled_mean(energy, control, np.array([limit.first_order]), even)
    gain = float(found[0]) / limit.first_order
    strength = float(np.linalg.norm(white.B, 2)) + np.expm1(sharpness) / 2
    beyond = np.maximum(n * limit.mse / limit.first_order - 1, 0.0) * strength
    mse, bias_square = gain * limit.mse, gain * limit.bias_square
    error = mse * np.hypot(float(spread[0] / found[0]), beyond)
    return CovarianceError(n, mse, bias_square, mse - bias_square, error)


def _strong_error(
    head: Head, tokens: Tokens, white: WhitenedHead, mean: MeanError
) -> CovarianceError:
    """The bias and the two-query law of squares."""
    n = mean.n
    half = normal_rule(tokens.dim, _QUERIES, 0)
    tilts = white.tilts(np.concatenate([half, -half]))
    top = 1.2 * max(float(np.linalg.norm(tilts, axis=1).max()), 1e-6)
    moments = OutputMoments.at(n, top, white.offset)
    gram = white.values @ white.values.T
    outputs = white.values @ np.stack([m.average(tilts) for m in moments]) @ white.values.T
    shift = white.values @ np.stack([m.average_shift(tilts) for m in moments]) @ white.values.T
    # A query is one of its own keys: what that adds to the trace is taken to be shaped like it.
    trace = np.maximum(np.trace(outputs, axis1=1, axis2=2), 1e-300)
    gain, unsure = np.array(own_gain(white, n, trace)) / trace
    unsure += _SECOND_ORDER * np.abs(gain)
    shift = shift + gain[:, None, None] * outputs - mean_square(mean.mse, gram)
    unsure *= np.linalg.norm(outputs, axis=(1, 2))
    unsure += [m.shift_error(tilts) for m in moments] * np.linalg.norm(shift, axis=(1, 2))
    bias = squared_bias(shift, unsure)
    alone = mean_squared_energy(white, tilts, n) - (outputs**2).sum(axis=(1, 2))
    if np.abs(white.offset).max() > _CENTRED * top:
        alone -= common_part(gram, outputs, mean.mse)
        together, error = _together(head, tokens, white, outputs, moments, mean)
    else:
        seen, unsure = _own_keys(head, tokens, white, outputs, moments, n)
        unsure = np.hypot(unsure, _SECOND_ORDER * seen)
        rest = bias[0] + alone / n + seen - mean_energy(mean.mse, gram)
        pair = _pair_squares(white, n, rest)
        together, error = two_queries(
            n, pair, (seen, unsure), (mean.mse, mean.numerical_error), gram
        )
    return summed(n, bias, alone / n + together, error)


def _pair_squares(white: WhitenedHead, n: NDArray[np.int64], other: Array) -> tuple[Array, Array]:
    """How two queries' outer products vary together, averaged over pairs; and its error."""
    first, second, pool = query_pairs(white, n)
    b1, b2 = white.tilts(first), white.tilts(second)
    keys = GaussianKeys(white.values, white.offset)

    def both_signs(index: int) -> Array:
        signs = [np.stack([b1[index], sign * b2[index]]) for sign in (1, -1)]
        found = [square_moment(keys, tilts, n) for tilts in signs]
        return (found[0] + found[1]) / 2

    return average_over_pairs(pool, both_signs, _PICKS, other=other)


def _own_keys(
    head: Head,
    tokens: Tokens,
    white: WhitenedHead,
    typical: Array,
    moments: tuple[OutputMoments, ...],
    n: NDArray[np.int64],
) -> tuple[Array, Array]:
    """What two queries' outer products gain by being keys of each other, to first order.

    A token moves the other queries' squares by its projection K, and has its own as a query.
    """
    rule = Projection.of(head, tokens, n, queries=2 * _RULE)
    seen, weight = _seen_tokens(white, _OWN_TOKENS)
    found = []
    for g in np.array_split(seen, _blocks(white, len(seen))):
        moved = 2 * rule.as_key(g, squares=True)[1]
        asked = zip(moments, moved, strict=True)
        inner = np.stack([o.inner(white.tilts(g), white.values, key) for o, key in asked])
        found.append(inner - (moved * typical[:, None]).sum(axis=(2, 3)))
    energy = weight * np.concatenate(found, axis=1)
    return energy.mean(axis=1), energy.std(axis=1) / np.sqrt(len(seen))


def _blocks(white: WhitenedHead, tokens: int) -> int:
    """In how many parts tokens go, for their squares to fit."""
    return max(1, tokens // max(1, _BLOCK_NUMBERS // len(white.values) ** 2))


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

    blocks = np.array_split(seen, _blocks(white, len(seen)))
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
