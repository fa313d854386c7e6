"""Two queries over the same Gaussian keys, against draws and the central limit."""

import numpy as np
import pytest
from scipy.special import softmax

import attnlimit as al
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.two_query.gaussian import GaussianKeys
from attnlimit.theory.two_query.isotropic import joint_moment, single_moment
from attnlimit.theory.two_query.mean import mean_error


@pytest.mark.parametrize("n", [2, 3, 6, 40])
def test_two_queries_that_are_keys_too(n):
    """E[Gamma_n . Gamma_n'] and E|Gamma_n|^2 given the queries, against 200,000 draws."""
    rng = np.random.default_rng(n)
    white = WhitenedHead(
        0.8 * rng.standard_normal((2, 2)), np.array([0.4, -0.2]), rng.standard_normal((3, 2))
    )
    law, z = GaussianKeys.of(white), rng.standard_normal((2, 2))
    tilts = white.tilts(z)
    keys = rng.standard_normal((200_000, n, 2))
    keys[:, :2] = z

    def output(tilt):
        weights = softmax(keys @ tilt, axis=1)
        return ((weights[:, :, None] * keys).sum(axis=1) - white.offset) @ white.values.T

    limits = (tilts - white.offset) @ white.values.T
    joint = (output(tilts[0]) * output(tilts[1])).sum(axis=1)
    predicted = joint_moment(law, tilts, z, np.array([n]))[0] + limits[0] @ limits[1]
    assert abs(joint.mean() - predicted) < 4 * joint.std() / np.sqrt(len(joint)) + 1e-5
    keys[:, 1] = rng.standard_normal((200_000, 2))
    square = (output(tilts[0]) ** 2).sum(axis=1)
    predicted = single_moment(law, tilts[0], z[:1], np.array([n]))[0]
    assert abs(square.mean() - predicted) < 4 * square.std() / np.sqrt(len(square)) + 1e-5


@pytest.mark.parametrize("h", [0.2, 0.5, 0.8])
def test_the_two_query_law_tends_to_the_influence_covariance(h):
    head, tokens = al.Head([[h]]), al.Gaussian(dim=1)
    n = np.array([10**12])  # close to the horizon 1 the limit is reached slowly
    result = mean_error(head, tokens, n)
    np.testing.assert_allclose(n * result.mse, al.mean_covariance(head, tokens)[0, 0], rtol=0.01)
