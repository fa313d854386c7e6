import numpy as np
import pytest

from attnlimit import Cube, Empirical, Gaussian, Head, Sphere
from attnlimit.simulate.statistics import limit_reference

RNG = np.random.default_rng(0)
HEAD = Head(RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))


def sampled(head, tokens, count=40_000):
    x = tokens.sample(count, 7)
    outputs = tokens.tilted_mean(x @ head.A.T) @ head.V.T
    return outputs.mean(axis=0), np.cov(outputs.T), outputs.std(axis=0) / np.sqrt(count)


@pytest.mark.parametrize(
    "tokens",
    [
        Gaussian(cov=np.diag([1.0, 0.5, 0.2])),
        Gaussian(cov=np.diag([1.0, 0.5, 0.2]), mean=[0.3, -1.0, 0.1]),
        Sphere(3),
        Cube(3),
        Empirical([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0], [3.0, 1.0, -1.0]]),
    ],
)
def test_reference_is_the_average_of_the_limit(tokens):
    reference = limit_reference(HEAD, tokens)
    mean, covariance, error = sampled(HEAD, tokens)
    assert (np.abs(reference.mean - mean) < 4.5 * error + reference.mean_error).all()
    np.testing.assert_allclose(reference.covariance, covariance, rtol=0.04, atol=0.02)


def test_quadrature_error_is_stated():
    reference = limit_reference(HEAD, Cube(3))
    assert reference.covariance_error > 0
    assert reference.mean_error == 0
