"""Two queries over n tokens of a population, resampled: against draws."""

import itertools

import numpy as np
import pytest
from scipy.special import softmax

import attnlimit as al
from attnlimit.theory.two_query.mean import mean_error
from attnlimit.theory.two_query.population import Population


@pytest.mark.parametrize("n", [2, 4])
def test_the_response_is_the_mean_over_all_draws(n):
    """Every choice of the tokens beside the query, of a population of three."""
    rng = np.random.default_rng(1)
    scores, values = rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    weights = np.array([0.2, 0.3, 0.5])
    population = Population.of(scores, values, weights)
    for i in range(3):
        places = np.array([(i, *others) for others in itertools.product(range(3), repeat=n - 1)])
        chance = weights[places[:, 1:]].prod(axis=1)
        seen = softmax(scores[i][places], axis=1)
        errors = (seen[:, :, None] * values[places]).sum(axis=1) - population.mean
        mean, square, response = population.response(i, np.array([n]))
        np.testing.assert_allclose(mean[0], chance @ errors, atol=1e-6)
        np.testing.assert_allclose(square[0], chance @ (errors**2).sum(axis=1), rtol=1e-6)
        for j in range(3):
            known = places[:, 1] == j
            moved = chance[known] @ errors[known] / weights[j] - mean[0]
            np.testing.assert_allclose(response[0, j], moved, atol=1e-6)


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
