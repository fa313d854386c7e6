"""What one token does to the mean output: a conditional mean, and a bound of the variance."""

import numpy as np
from scipy.special import softmax

import attnlimit as al
from attnlimit.theory.pairs.covariance.projection import Projection
from attnlimit.theory.pairs.mean import mean_error


def test_the_projection_is_a_conditional_mean():
    """E[m_n | one token is y] - E m_n, against draws with that token put in."""
    head, tokens, n = al.Head([[1.2]]), al.Gaussian(dim=1), 30
    projection = Projection.of(head, tokens, n, queries=512)
    y = np.array([[-2.0], [0.3], [1.5], [3.0]])
    found = projection.mean(y)[0, :, 0]
    rng = np.random.default_rng(4)
    keys = rng.standard_normal((40_000, n, 1))
    for value, predicted in zip(y, found, strict=True):
        keys[:, 0] = value
        weights = softmax(1.2 * keys @ np.swapaxes(keys, 1, 2), axis=2)
        outputs = (weights @ keys).mean(axis=(1, 2))
        stderr = outputs.std() / np.sqrt(len(outputs))
        # The projection leaves out that the other queries are keys of their own.
        assert abs(outputs.mean() - predicted) < 4 * stderr + 0.05 * abs(predicted)
    centred = projection.mean(tokens.points(2048))[0]
    assert abs(centred.mean()) < 0.02 * centred.std()


def test_the_projection_is_a_lower_bound_of_the_variance():
    head, tokens, n = al.Head([[0.6]]), al.Gaussian(dim=1), np.array([100])
    projection = Projection.of(head, tokens, n)
    bound = 100 * (projection.mean(tokens.points(4096))[0] ** 2).mean()
    exact = mean_error(head, tokens, n).mse[0]
    assert 0.9 * exact < bound < 1.01 * exact
