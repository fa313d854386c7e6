"""Bessel functions of every dimension and size, against arithmetic with forty digits."""

import numpy as np
import pytest

from attnlimit.tokens.spherical import bessel_ratio, bessel_ratio_slope, log_hypergeometric

mpmath = pytest.importorskip("mpmath")
SIZES = np.array([1e-12, 1e-6, 1e-3, 0.1, 3.0, 40.0, 700.0, 2e4, 1e7])


@pytest.mark.parametrize("dim", [1, 2, 3, 50, 384, 4096])
def test_forty_digits_agree(dim):
    order = dim / 2 - 1
    with mpmath.workdps(40):
        exact = [bessel(mpmath.mpf(order), mpmath.mpf(float(x))) for x in SIZES]
    cgf, ratio, slope = (np.array(column, dtype=float) for column in zip(*exact, strict=True))
    np.testing.assert_allclose(log_hypergeometric(order, SIZES), cgf, rtol=1e-10)
    np.testing.assert_allclose(bessel_ratio(order, SIZES), ratio, rtol=1e-10)
    # In one dimension the slope dies exponentially, below the reference's own last digit.
    np.testing.assert_allclose(bessel_ratio_slope(order, SIZES), slope, rtol=1e-6, atol=1e-39)


def bessel(order, x):
    """The CGF, its slope and its second derivative, from 0F1 and its neighbours alone."""
    made = (mpmath.hyp0f1(order + k, x**2 / 4, maxterms=10**6) for k in (1, 2, 3))
    whole, first, second = made
    ratio = x / (2 * (order + 1)) * first / whole
    after = x / (2 * (order + 2)) * second / first
    return mpmath.log(whole), ratio, ratio / x + ratio * (after - ratio)
