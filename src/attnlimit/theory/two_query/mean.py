"""The exact error of the mean output at finite n, E|m_n - m|^2, from the law of two queries.

    E|m_n - m|^2 = (1/n) E|Gamma_n(x) - m|^2 + (1 - 1/n) E[(Gamma_n(x) - m).(Gamma_n(x') - m)],

with every query one of the n keys. Exact given the queries; the average over queries is a
quasi-random rule whose error is reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead, check_reach
from attnlimit.theory.two_query.average import (
    MeanError,
    PairPool,
    average_errors,
    average_over_pairs,
    combine,
)
from attnlimit.theory.two_query.gaussian import GaussianKeys, OwnKeyControl
from attnlimit.theory.two_query.law import joint_moment, single_moment
from attnlimit.theory.two_query.population import population_mean_error
from attnlimit.theory.two_query.sphere import sphere_mean_error
from attnlimit.tokens import GaussianForm, Sphere, SphericalForm, Tokens
from attnlimit.tokens.gaussian import normal_rule

POOL = 8192
_SMALLEST_POOL = 512
_POOL_NUMBERS = 2**20  # memory: the pool of pairs shrinks in high dimensions
PICKS = 189
_COSTLY_PICKS = 72
_OWN_PICKS = 64
_POOL_TILT = 0.8
_MOST_CORRELATED = 0.7
MOST_PAIR_SIGMA = 80.0
_QUASI_KEYS = 768
_CROWD = 8  # up to this fraction of the stand-in's size, n tokens never exhaust it


def mean_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64], picks: int | None = None
) -> MeanError:
    """Error of the mean output by the two-query law; `picks` is how many pairs at most."""
    form, atoms = tokens.form, tokens.atoms()
    if isinstance(form, GaussianForm):
        return _gaussian_mean_error(WhitenedHead.of(head, tokens), n, picks or PICKS)
    if isinstance(form, SphericalForm) and form.radial_dim == tokens.dim and atoms is None:
        sphere = Sphere(tokens.dim, form.radius)
        return sphere_mean_error(head, sphere, n, picks or _COSTLY_PICKS)
    return _population_mean_error(head, tokens, n, picks or _COSTLY_PICKS)


def _gaussian_mean_error(white: WhitenedHead, n: NDArray[np.int64], picks: int) -> MeanError:
    first, second, pool = query_pairs(white, n)
    b1, b2 = white.tilts(first), white.tilts(second)
    sigma1, sigma2 = np.linalg.norm(b1, axis=1), np.linalg.norm(b2, axis=1)
    widest = float(max(sigma1.max(), sigma2.max()))
    if widest > MOST_PAIR_SIGMA:
        raise BadInput(
            f"queries' scores have standard deviations up to {widest:.3g}: attention is a hard "
            f"maximum there and the two-query law stops at {MOST_PAIR_SIGMA:g}; "
            "use measure(head, tokens, statistic, n, replicates)."
        )
    control = OwnKeyControl.of(white, n, 1.2 * widest + 1e-6)
    keys = GaussianKeys(white.values, white.offset)

    def both_signs(index: int) -> Array:
        own = [np.stack([first[index], sign * second[index]]) for sign in (1, -1)]
        found = [joint_moment(keys, white.tilts(z), z, n) - control.pair(*z) for z in own]
        return (found[0] + found[1]) / 2

    def alone(index: int) -> Array:
        return single_moment(keys, b1[index], first[index : index + 1], n)

    own_pool = PairPool(sigma1, np.zeros((len(sigma1), 0)), pool.weight)
    limit_square = float(np.trace(white.tilt_cov @ white.metric))
    own, own_error = average_over_pairs(own_pool, alone, _OWN_PICKS, other=limit_square)
    own += limit_square
    average, average_error = control.average()
    pair, pair_error = average_over_pairs(pool, both_signs, picks, other=average + own / n)
    return combine(n, own, own_error, pair + average, np.hypot(pair_error, average_error))


def query_pairs(white: WhitenedHead, n: NDArray[np.int64]) -> tuple[Array, Array, PairPool]:
    """Pairs of whitened queries (M, d), (M, d), and how much each should matter for these n.

    Two queries share keys in proportion to e^{<b1, b2>}, as far as n keys can reach.
    """
    first, second, weight = _query_pool(white, float(n.max()))
    tilts = white.tilts(first), white.tilts(second)
    sizes = np.linalg.norm(tilts[0], axis=1), np.linalg.norm(tilts[1], axis=1)
    reach = np.sqrt(2 * np.log(float(np.exp(np.log(n.astype(float)).mean()))))
    one, other = (np.minimum(1, reach / np.maximum(size, 1e-300)) for size in sizes)
    importance = np.abs((tilts[0] * tilts[1]).sum(axis=1)) * one * other
    return first, second, PairPool.of(importance, weight, tilts, sizes, white.values)


def _query_pool(white: WhitenedHead, most: float) -> tuple[Array, Array, Array]:
    """Pairs of whitened queries (M, d), (M, d) and their weights.

    Half are independent; half are drawn with the density tilted by e^{c <b, b'>}, where the pairs
    that share keys are, mode by mode of B. Each weighs what it stands for under the mixture.
    """
    dim = len(white.B)
    size = int(np.clip(2 ** int(np.log2(_POOL_NUMBERS / dim)), _SMALLEST_POOL, POOL))
    normals = normal_rule(2 * dim, size, 0)
    left, singular, _ = np.linalg.svd(white.B)
    modes = normals[:, :dim] @ left, normals[:, dim:] @ left
    typical = float((singular**2).sum() + white.offset @ white.offset)
    shrink = min(1.0, 2 * np.log(most) / max(typical, 1e-300))
    correlation = np.minimum(_POOL_TILT * shrink * singular**2, _MOST_CORRELATED)
    half = np.arange(size) % 2 == 1
    spread = 1 / np.sqrt(1 - correlation**2)
    one = np.where(half[:, None], modes[0] * spread, modes[0])
    other = np.where(half[:, None], modes[1] + correlation * one, modes[1])
    tilt = (one * other) @ correlation
    log_mass = np.log1p(-(correlation**2)).sum() / 2
    ratio = np.exp(log_mass + np.logaddexp(tilt, -tilt) - np.log(2))
    weight = 1 / (0.5 + 0.5 * ratio)
    return one @ left.T, other @ left.T, weight / weight.sum()


def _population_mean_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64], picks: int
) -> MeanError:
    """The same for finitely many tokens, exactly, or for quasi-random stand-ins of a measure."""
    found = []
    for points, weights in stand_ins(tokens):
        if tokens.atoms() is None and n.max() > len(points) / _CROWD:
            check_reach(tokens, head.tilts(points[::4]), points, weights)
        scores = head.tilts(points) @ points.T
        found.append(population_mean_error(scores, points @ head.V.T, n, weights, picks))
    return average_errors(found)


def stand_ins(tokens: Tokens) -> list[tuple[Array, Array]]:
    """Finite populations as (points, weights): the tokens, or two quasi-random sets of them."""
    seeds = (0, 1) if tokens.atoms() is None else (0,)
    return [tokens.rule(_QUASI_KEYS, seed) for seed in seeds]
