"""Outer products of two outputs over the same keys, and powers of a Wishart matrix, exactly."""

import numpy as np
import pytest
from scipy.special import softmax

from attnlimit.theory.pairs.covariance.square_law import square_moment
from attnlimit.theory.pairs.covariance.wishart import mean_polynomial, moment_polynomial
from attnlimit.theory.pairs.gaussian import GaussianKeys
from attnlimit.theory.pairs.sphere.keys import SphereKeys
from attnlimit.theory.pairs.sphere.sharp import height_gap, pair_levels


@pytest.mark.parametrize(("scale", "dim", "n"), [(0.5, 3, 3), (1.0, 3, 6), (2.5, 4, 10), (1, 1, 5)])
def test_squares_of_two_queries_against_draws(scale, dim, n):
    rng = np.random.default_rng(dim + n)
    values = rng.standard_normal((3, dim))
    tilts = scale * rng.standard_normal((2, dim))
    tilts[1] += tilts[0] / 2
    keys = rng.standard_normal((60_000, n, dim))
    outputs = [
        np.einsum("bn,bnd->bd", softmax(keys @ tilt, axis=1), keys) @ values.T for tilt in tilts
    ]
    squares = (outputs[0] * outputs[1]).sum(axis=1) ** 2
    apart = (outputs[0] * np.roll(outputs[1], 1, axis=0)).sum(axis=1) ** 2
    found = square_moment(GaussianKeys(values, np.zeros(dim)), tilts, np.array([n]))[0]
    gap = squares - apart
    assert abs(found - gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))


@pytest.mark.parametrize(
    ("dim", "n", "sizes", "cosine"),
    [
        (2, 20, (3, 5), 0.8),
        (3, 2, (2, 3), 0.3),
        (3, 12, (40, 60), 0.95),
        (4, 60, (0, 2), 0.5),
        (10, 50, (60, 70), 0.9),
        (50, 100, (100, 120), 0.95),
    ],
)
def test_squares_on_the_sphere_against_draws(dim, n, sizes, cosine):
    """Keys of length one, down to none left across the plane (d = 2) and one direction (d = 3)."""
    rng = np.random.default_rng(dim + n)
    keys = SphereKeys(np.eye(dim), rng.standard_normal((3, dim)))
    axes = np.linalg.qr(rng.standard_normal((dim, 2)))[0].T
    tilts = np.array([axes[0], cosine * axes[0] + np.sqrt(1 - cosine**2) * axes[1]])
    tilts *= np.array(sizes)[:, None]
    draws = rng.standard_normal((400_000 // n, n, dim))
    draws /= np.linalg.norm(draws, axis=2, keepdims=True)
    outputs = [
        np.einsum("bn,bnd->bd", softmax(draws @ tilt, axis=1), draws) @ keys.values.T
        for tilt in tilts
    ]
    squares = (outputs[0] * outputs[1]).sum(axis=1) ** 2
    gap = squares - (outputs[0] * np.roll(outputs[1], 1, axis=0)).sum(axis=1) ** 2
    found = [square_moment(k, tilts, np.array([n]))[0] for k in (keys, keys.coarse())]
    assert abs(found[0] - gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))
    assert abs(found[1] - found[0]) < 1e-3 * squares.mean()


@pytest.mark.parametrize(
    ("dim", "n", "cosine"), [(10, 100, 0.3), (10, 100, 0.8), (10, 1000, 0.8), (50, 1000, 0.8)]
)
def test_squares_of_frozen_queries_are_reached_by_extrapolation(dim, n, cosine):
    """A parabola in 1/size from one cap, and from one twice as high."""
    keys = SphereKeys(np.eye(dim), np.random.default_rng(n + dim).standard_normal((dim, dim)))
    tilts = np.zeros((2, dim))
    tilts[0, 0], tilts[1, :2] = 1e6, 1e6 * np.array([cosine, np.sqrt(1 - cosine**2)])
    found = []
    for gap in (4.0, 8.0):
        levels = pair_levels(tilts, gap / float(height_gap(dim, np.array(n))))
        moments = [s * square_moment(keys.coarse(), cut, np.array([n]))[0] for cut, s in levels]
        found.append(sum(moments))
    assert len(levels) == 3
    np.testing.assert_allclose(found[0], found[1], rtol=0.04)


def test_powers_of_a_chi_squared_variable():
    """In one dimension X is chi-squared: E X^6 = N (N + 2) ... (N + 10)."""
    one = {"b": np.ones((1, 1)), "B": np.ones((1, 1)), "M": np.ones((1, 1))}
    exact = np.polynomial.polynomial.polyfromroots([0, -2, -4, -6, -8, -10])
    np.testing.assert_allclose(moment_polynomial("bBMbBM", one), exact)
    np.testing.assert_allclose(np.ravel(mean_polynomial("bB", one)), [0, 8, 6, 1])


def test_products_with_a_wishart_matrix():
    """E tr(XAXB) = N^2 tr AB + N (tr AB' + tr A tr B)."""
    A, B = np.random.default_rng(0).standard_normal((2, 3, 3))
    found = moment_polynomial("ab", {"a": A, "A": A.T, "b": B, "B": B.T})
    once = np.trace(A @ B.T) + np.trace(A) * np.trace(B)
    np.testing.assert_allclose(found, [0, once, np.trace(A @ B)])
