"""Two queries over n tokens of a population, resampled: against draws."""

import itertools

import numpy as np
import pytest
from scipy.special import softmax

import attnlimit as al
from attnlimit.theory.two_query.mean import mean_error
from attnlimit.theory.two_query.population import Population


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
def test_population_two_query_law(scale):
    """Resampled tokens of a small population: within 4 standard errors of draws."""
    rng = np.random.default_rng(5)
    tokens = al.Empirical(rng.standard_normal((50, 4)))
    head = al.Head(scale * rng.standard_normal((4, 4)) / 2, rng.standard_normal((3, 4)))
    n = np.array([2, 12, 80])
    result = mean_error(head, tokens, n)
    centre = head(tokens.locations, tokens.locations).mean(axis=0)
    for k, size in enumerate(n):
        squares = []
        for _ in range(1500):
            y = tokens.sample(int(size), rng)
            squares.append(((head(y, y).mean(axis=0) - centre) ** 2).sum())
        stderr = np.std(squares) / np.sqrt(len(squares))
        gap = abs(result.mse[k] - np.mean(squares))
        assert gap < 4 * np.hypot(stderr, result.numerical_error[k])
        assert result.numerical_error[k] < 0.1 * result.mse[k]


@pytest.mark.parametrize("scale", [0.3, 1.5])
@pytest.mark.parametrize("n", [2, 4])
def test_responses_are_those_of_all_outcomes(scale, n):
    """The mean output of a query, given that another key is a certain token: all draws counted."""
    rng = np.random.default_rng(3)
    scores, values = scale * rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    weights = np.array([0.5, 0.3, 0.2])
    population = Population.of(scores, values, weights)
    mean, square, response = population.response(1, np.array([n]))

    def expected(known):
        total = np.zeros(2)
        for others in itertools.product(range(3), repeat=n - 2):
            keys = [1, known, *others]
            total += weights[list(others)].prod() * softmax(scores[1, keys]) @ values[keys]
        return total

    by_key = np.array([expected(known) for known in range(3)])
    np.testing.assert_allclose(mean[0], weights @ by_key - population.mean, atol=1e-6)
    np.testing.assert_allclose(response[0], by_key - weights @ by_key, atol=1e-6)
    assert square[0] >= (mean[0] ** 2).sum()
