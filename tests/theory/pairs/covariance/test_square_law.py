"""Outer products of two outputs over the same keys, and powers of a Wishart matrix, exactly."""

import numpy as np
import pytest
from scipy.special import softmax

from attnlimit.theory.pairs.covariance.square_law import square_moment
from attnlimit.theory.pairs.covariance.wishart import mean_polynomial, moment_polynomial


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
    found = square_moment(values.T @ values, tilts, np.array([n]))[0]
    gap = squares - apart
    assert abs(found - gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))


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
