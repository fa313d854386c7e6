"""Intervals of skewed draws hold the truth as often as they say, over 200 seeds of each."""

import numpy as np
import pytest

from attnlimit.intervals import (
    degrees_of_freedom,
    excess_kurtosis,
    function_skewness,
    interval,
    normal_score,
    skewness,
    studentized,
)

SEEDS, LEVEL = 200, 0.95
FOUR_ERRORS = 4 * np.sqrt(LEVEL * (1 - LEVEL) / SEEDS)


def held(low, high, truth):
    return ((low <= truth) & (truth <= high)).mean()


@pytest.mark.parametrize("skew", [-1.5, -0.2, 0.0, 1e-8, 0.4, 2.0])
def test_the_cubic_and_its_inverse(skew):
    distances = np.linspace(-3, 3, 13)
    there = [float(studentized(distance, np.array(skew))) for distance in distances]
    np.testing.assert_allclose(normal_score(np.array(there), np.array(skew)), distances, atol=1e-7)
    mirrored = normal_score(-distances, -np.full(13, skew))
    np.testing.assert_allclose(mirrored, -normal_score(distances, np.full(13, skew)))


@pytest.mark.parametrize(("draws", "sigma"), [(20, 0.5), (50, 0.8)])
def test_means_of_log_normal_draws(draws, sigma):
    drawn = np.random.default_rng(1).lognormal(sigma=sigma, size=(draws, SEEDS))
    stderr, skew = drawn.std(axis=0, ddof=1) / np.sqrt(draws), skewness(drawn) / np.sqrt(draws)
    low, high = interval(drawn.mean(axis=0), stderr, skew, draws - 1)
    assert abs(held(low, high, np.exp(sigma**2 / 2)) - LEVEL) < FOUR_ERRORS
    assert (high + low > 2 * drawn.mean(axis=0)).mean() > 0.9


@pytest.mark.parametrize(("law", "kurtosis"), [("normal", 0.0), ("laplace", 3.0)])
def test_variances_of_long_tails_have_fewer_degrees_of_freedom(law, kurtosis):
    """Relative to its square, a variance of some draws varies by 2 / freedom."""
    draws = 40
    drawn = getattr(np.random.default_rng(2), law)(size=(draws, 40000))
    variances = drawn.var(axis=0, ddof=1)
    varies = variances.var() / variances.mean() ** 2
    assert 2 / degrees_of_freedom(np.array(kurtosis), draws) == pytest.approx(varies, rel=0.05)
    assert excess_kurtosis(drawn.ravel()) == pytest.approx(kurtosis, abs=0.1)
    assert (degrees_of_freedom(excess_kurtosis(drawn), draws) <= draws - 1 + 1e-9).all()
    assert excess_kurtosis(np.ones((5, 2))).tolist() == [0, 0]


@pytest.mark.parametrize("draws", [3, 5, 10])
def test_means_of_few_draws_are_students(draws):
    """A normal quantile holds the truth 81 %, 88 % and 92 % of the time."""
    drawn = np.random.default_rng(3).standard_normal((draws, 20_000))
    stderr = drawn.std(axis=0, ddof=1) / np.sqrt(draws)
    low, high = interval(drawn.mean(axis=0), stderr, np.zeros(20_000), draws - 1)
    assert held(low, high, 0.0) == pytest.approx(LEVEL, abs=0.006)


def test_a_function_of_a_mean_is_bent_as_it_is_curved():
    """exp of a normal mean: what its own interval would be, but for the third order."""
    stderr = np.array([0.05, 0.1])
    value, spread = np.exp(1.0), np.exp(1.0) * stderr
    skew = function_skewness(np.zeros(2), stderr, np.ones(2))
    low, high = interval(np.full(2, value), spread, skew, 10**9)
    for end, sign in ((low, -1), (high, 1)):
        exact, straight = np.exp(1.0 + sign * 1.96 * stderr), value + sign * 1.96 * spread
        assert (np.abs(end - exact) < np.abs(straight - exact) / 3).all()
