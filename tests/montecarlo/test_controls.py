import numpy as np
import pytest
import torch

from attnlimit import Cube, Gaussian, Head, Mixture, Sphere, measure
from attnlimit.montecarlo.controls import token_features
from attnlimit.montecarlo.estimators import covariance_estimator
from attnlimit.montecarlo.reference import limit_reference
from attnlimit.montecarlo.sweep import sweep

RNG = np.random.default_rng(0)
COV = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 0.8]])
HEAD = Head(0.5 * RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))


@pytest.mark.parametrize(
    ("tokens", "head"),
    [
        (Gaussian(cov=COV), HEAD),
        (Gaussian(cov=COV, mean=[1.0, 0.0, -1.0]), HEAD),
        (Gaussian(cov=COV), HEAD.scaled(5.0)),
        (Sphere(3), HEAD),
        (Cube(3), HEAD),
    ],
    ids=["gaussian", "shifted", "past the horizon", "sphere", "cube"],
)
def test_moments_of_the_features_are_what_they_claim(tokens, head):
    features = token_features(head, tokens)
    draws = [tokens.sample(1, np.random.default_rng([1, r])) for r in range(4000)]
    keys = torch.from_numpy(np.stack(draws)).float()
    vectors, scalars = features.sums(keys)
    products = np.einsum("rjv,rkv->rjk", vectors.numpy(), vectors.numpy())
    for sample, expected in (
        (vectors.numpy(), 0.0),
        (products, features.gram),
        (scalars.numpy(), features.scalar_means),
    ):
        error = sample.std(axis=0) / np.sqrt(len(sample))
        assert (np.abs(sample.mean(axis=0) - expected) < 4.5 * error + 1e-3).all()


def test_over_very_many_tokens_no_feature_has_a_mean_that_is_off():
    """What a quasi-random mean is off would be larger than the features over n tokens are."""
    n = 10**6
    symmetric = token_features(HEAD, Sphere(3))
    assert not symmetric.centre.any()
    assert symmetric.steady(n)[0].all()
    parts = [Gaussian(cov=COV), Gaussian(cov=COV, mean=[1.0, 0.0, -1.0])]
    other = token_features(HEAD, Mixture([0.3, 0.7], parts))
    used = other.steady(n)[0]
    drawn = Mixture([0.3, 0.7], parts).sample(n, 5)
    means = other.values(drawn).mean(axis=0) - other.centre
    allowed = np.diag(other.gram) / n
    assert ((means**2).sum(axis=1)[used] < 8 * allowed[used]).all()
    assert not used.all()
    assert other.steady(1000)[0].all()


def test_sums_add_over_segments():
    features = token_features(HEAD, Gaussian(cov=COV))
    keys = torch.from_numpy(Gaussian(cov=COV).sample(50, 2)).float()[None]
    whole, parts = features.sums(keys), (features.sums(keys[:, :20]), features.sums(keys[:, 20:]))
    for index in (0, 1):
        torch.testing.assert_close(whole[index], parts[0][index] + parts[1][index])


def test_mean_square_of_the_linear_covariance_control():
    tokens = Gaussian(cov=COV)
    reference = limit_reference(HEAD, tokens)
    estimator = covariance_estimator(reference, HEAD.A, HEAD.V, COV, np.zeros(0))
    n, squares = 40, []
    for seed in range(3000):
        y = tokens.sample(n, seed)
        gap = torch.from_numpy(y.T @ y / n - COV)
        moved = sum(left @ gap @ right for left, right in estimator.linear)
        squares.append(float((moved**2).sum()))
    error = np.std(squares) / np.sqrt(len(squares))
    assert abs(np.mean(squares) - estimator.square_mean / n) < 4 * error


@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_controls_of_the_covariance_have_mean_zero(scale):
    tokens, head = Gaussian(cov=COV), HEAD.scaled(scale)
    seed = np.random.SeedSequence(1)
    found = sweep(head, tokens, ["covariance"], np.array([50, 200]), 100, seed, queries=40)
    for controls in found["covariance"].zeros:
        error = controls.std(axis=0) / np.sqrt(len(controls))
        assert (np.abs(controls.mean(axis=0)) <= 4.5 * error).all()


def test_asking_few_queries_costs_a_diffuse_head_next_to_nothing():
    tokens = Gaussian(cov=COV)
    few, whole = (
        measure(HEAD.scaled(0.05), tokens, "covariance", [400], 200, queries=queries)
        for queries in (40, "all")
    )
    assert few.stderr[0] < 1.5 * whole.stderr[0]
