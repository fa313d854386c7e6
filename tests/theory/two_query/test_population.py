"""Two queries over n tokens of a population, resampled: against draws."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.theory.two_query.mean import mean_error


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
