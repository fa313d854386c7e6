"""What one rare token does has a known mean, and takes the tail out of what was drawn."""

import numpy as np
import pytest

from attnlimit.montecarlo.lone import LoneToken
from attnlimit.skewed import interval, skewness
from attnlimit.tokens import Laplace

SEEDS, DRAWS, LEVEL = 200, 100, 0.95


def laplace(tilt):
    tokens = Laplace(1)
    mass, limit = np.exp(tokens.cgf([[tilt]])[0]), tokens.tilted_mean([[tilt]])[0, 0]
    return LoneToken(tilt, float(mass), float(limit))


@pytest.mark.parametrize("tilt", [0.2, 0.7, 0.9])
def test_its_mean_is_that_of_draws(tilt):
    lone, sizes = laplace(tilt), [10, 100]
    means = lone.laplace_means(sizes)
    rng = np.random.default_rng(0)
    found = [lone.excess(Laplace(1).sample(100, rng)[:, 0], sizes, means) for _ in range(4000)]
    average, spread = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(average) < 4 * spread).all()
    assert (spread > 0).all()


@pytest.mark.parametrize("tilt", [0.2, 0.7])
def test_intervals_without_the_tail_hold_the_truth(tilt):
    """Of 200 seeds of 100 draws; plain draws are so skewed that their intervals do not."""
    lone, n = laplace(tilt), 30
    drawn = Laplace(1).sample(DRAWS * SEEDS * n, np.random.default_rng(2)).reshape(-1, n)
    weights = np.exp(tilt * drawn)
    squares = ((weights * drawn).sum(axis=1) / weights.sum(axis=1) - lone.limit) ** 2
    excess = lone.square(drawn, n).sum(axis=1) - lone.laplace_means([n])
    less = squares - excess
    assert np.abs(skewness(less)) < skewness(squares) / 4
    assert less.var() < squares.var() / 2
    values = less.reshape(SEEDS, DRAWS)
    error, skew = values.std(axis=1, ddof=1) / np.sqrt(DRAWS), skewness(values.T) / np.sqrt(DRAWS)
    low, high = interval(values.mean(axis=1), error, skew, DRAWS - 1)
    share = ((low <= less.mean()) & (less.mean() <= high)).mean()
    assert abs(share - LEVEL) < 4 * np.sqrt(LEVEL * (1 - LEVEL) / SEEDS)
