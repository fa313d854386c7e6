"""Two queries over n tokens of a population: resampled, against draws; different, all subsets."""

from itertools import combinations

import numpy as np
import pytest

import attnlimit as al
from attnlimit.theory.two_query.distinct import distinct_mean_error
from attnlimit.theory.two_query.mean import mean_error


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
def test_population_two_query_law(scale):
    """Resampled tokens of a small population: within 4 standard errors of draws."""
    rng = np.random.default_rng(5)
    tokens = al.Empirical(rng.standard_normal((50, 4)))
    head = al.Head(scale * rng.standard_normal((4, 4)) / 2, rng.standard_normal((3, 4)))
    n = np.array([2, 12, 80])
    result = mean_error(head, tokens, n, picks=400)
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


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
def test_without_replacement_against_all_subsets(scale):
    """Six tokens: the law is the average over all subsets of every size."""
    rng = np.random.default_rng(1)
    scores, values = scale * rng.standard_normal((6, 6)), rng.standard_normal((6, 3))

    def mean(tokens):
        chosen = np.exp(scores[np.ix_(tokens, tokens)])
        return (chosen / chosen.sum(axis=1, keepdims=True) @ values[list(tokens)]).mean(axis=0)

    centre = mean(range(6))
    n = np.arange(1, 7)
    expected = [
        np.mean([((mean(chosen) - centre) ** 2).sum() for chosen in combinations(range(6), size)])
        for size in n
    ]
    error = distinct_mean_error(scores, values, n)
    np.testing.assert_allclose(error.mse, expected, rtol=3e-6, atol=1e-12)
    assert (error.numerical_error == 0).all()


def test_without_replacement_pairs_are_drawn():
    """Of 10 tokens 16 pairs stand for 45, within the error that they state."""
    rng = np.random.default_rng(2)
    scores, values = 2 * rng.standard_normal((10, 10)), rng.standard_normal((10, 3))
    n = np.array([3, 7])
    whole, some = (distinct_mean_error(scores, values, n, picks) for picks in (45, 16))
    assert (whole.numerical_error == 0).all()
    assert (np.abs(some.mse - whole.mse) < 4 * some.numerical_error).all()
    assert (some.numerical_error < 0.1 * whole.mse).all()
