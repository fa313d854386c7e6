"""The covariance of outputs over n tokens of a population, against every draw there is."""

from itertools import product

import numpy as np
import pytest

from attnlimit.theory.pairs.finite.covariance import finite_covariance_error
from attnlimit.theory.pairs.finite.moving import MovingCentre
from attnlimit.theory.pairs.finite.tokens import Population

N = 4
RNG = np.random.default_rng(0)
VALUES, NOISE = RNG.standard_normal((N, 2)), RNG.standard_normal((N, N))
PARTS = 0.1 * RNG.standard_normal((N, 2)) + 0.2 * VALUES


def outputs(scores, tokens):
    chosen = np.exp(scores[np.ix_(tokens, tokens)])
    return chosen / chosen.sum(axis=1, keepdims=True) @ VALUES[list(tokens)]


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_squares_about_a_moving_centre(scale):
    """One query's fourth moment and two queries' square, with the centre a sum over the keys."""
    scores = scale * NOISE
    population = Population.of(scores, VALUES, np.full(N, 1 / N), N)
    moving = MovingCentre.of(population, PARTS, 4)
    about = {}
    for rest in product(range(N), repeat=3):
        for first in (0, 1):
            tokens = (first, *rest)
            about[tokens] = outputs(scores, tokens) - population.mean - PARTS[list(tokens)].sum(0)
    alone = [found[0] for tokens, found in about.items() if tokens[0] == 0]
    fourth, second = moving.single(0)
    assert fourth == pytest.approx(np.mean([(x @ x) ** 2 for x in alone]), rel=3e-5)
    np.testing.assert_allclose(second, np.mean([np.outer(x, x) for x in alone], 0), atol=1e-6)
    both = [found for tokens, found in about.items() if tokens[:2] == (0, 1)]
    assert moving.pair(0, 1) == pytest.approx(np.mean([(x[0] @ x[1]) ** 2 for x in both]), rel=3e-5)
    again = [found[0] for tokens, found in about.items() if tokens[:2] == (0, 0)]
    twice = moving.single(0, copies=2)[0]
    assert twice == pytest.approx(np.mean([(x @ x) ** 2 for x in again]), rel=3e-5)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_stated_error_covers_every_draw(scale):
    """Five of four tokens, where what is not exact is as large as it gets."""
    scores = scale * NOISE
    limit = np.cov(outputs(scores, range(N)).T, bias=True)
    draws = [np.cov(outputs(scores, tokens).T, bias=True) for tokens in product(range(N), repeat=5)]
    expected = np.mean([((found - limit) ** 2).sum() for found in draws])
    found = finite_covariance_error(scores, VALUES, np.array([5]))
    assert abs(found.mse[0] - expected) < 2 * found.numerical_error[0]
