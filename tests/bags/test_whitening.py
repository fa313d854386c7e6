import numpy as np
import pytest

from attnlimit.bags.pooling import whitening
from attnlimit.errors import BadInput


def test_noise_becomes_white():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((4000, 4)) @ rng.standard_normal((4, 4)) + 3
    white = whitening(noise, noise, shrinkage=0.0)(noise)
    np.testing.assert_allclose(np.cov(white.T), np.eye(4), atol=1e-3)


def test_more_features_than_instances_are_seen_in_the_span():
    rng = np.random.default_rng(2)
    instances = rng.standard_normal((10, 50))
    coordinates = whitening(instances, instances[:6])
    assert coordinates(instances).shape[1] <= 10
    assert 0 < coordinates.shrinkage <= 1
    assert np.isfinite(coordinates(instances)).all()


def test_constant_features_are_left_out():
    instances = np.random.default_rng(3).standard_normal((20, 3)) * [1, 0, 1]
    moved = instances + np.array([0, 5, 0])
    coordinates = whitening(instances, instances)
    np.testing.assert_allclose(coordinates(instances), coordinates(moved))


def test_noise_without_spread_is_refused():
    with pytest.raises(BadInput, match="at least 2"):
        whitening(np.ones((3, 2)), np.ones((1, 2)))
    with pytest.raises(BadInput, match="alike"):
        whitening(np.ones((3, 2)), np.ones((3, 2)))
