"""Influence functions and the central limit: closed forms against sums and draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
from attnlimit.theory.covariance import population_responses
from attnlimit.theory.moments import WhitenedHead

RNG = np.random.default_rng(7)
HEAD = al.Head(0.25 * RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))
SHIFTED = al.Gaussian(np.diag([1.0, 0.7, 0.4]), mean=[0.3, -0.5, 0.2])


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 0.97))
def test_one_dimension_has_a_closed_form(h):
    covariance = al.mean_covariance(al.Head([[h]]), al.Gaussian(dim=1))
    np.testing.assert_allclose(covariance, h**2 + 2 * h + (1 - h**4) ** -1.5, rtol=1e-11)


def test_reference_file(reference):
    section = reference["mean_covariance_gaussian"]
    for case in section["cases"]:
        covariance = al.mean_covariance(al.Head([[case["H"]]]), al.Gaussian(dim=1))
        np.testing.assert_allclose(covariance[0, 0], case["value"], rtol=section["rtol"])


def test_infinite_at_and_past_the_horizon():
    for h in (1.0, 1.5):
        assert np.isinf(al.mean_covariance(al.Head([[h]]), al.Gaussian(dim=1))).all()


def test_the_svd_formula_for_centred_tokens():
    tokens = al.Gaussian(SHIFTED.cov())
    white = WhitenedHead.of(HEAD, tokens)
    _, b, right = np.linalg.svd(white.B)
    inner = white.tilt_cov + white.B + white.B.T
    inner += np.prod((1 - b**4) ** -0.5) * right.T @ np.diag(1 / (1 - b**4)) @ right
    by_svd = white.values @ inner @ white.values.T
    np.testing.assert_allclose(al.mean_covariance(HEAD, tokens), by_svd, rtol=1e-11)


def test_influences_are_the_expectations_they_stand_for():
    """psi in closed form against a quasi-random average over queries."""
    y = SHIFTED.sample(6, 0)
    x = SHIFTED.points(1 << 15)
    tilts = HEAD.tilts(x)
    ratio = np.exp(y @ tilts.T - SHIFTED.cgf(tilts)) / len(x)
    outputs = al.limit(HEAD, SHIFTED)(x)
    mean, own = outputs.mean(axis=0), al.limit(HEAD, SHIFTED)(y)
    values = y @ HEAD.V.T
    psi = own - mean + ratio.sum(axis=1)[:, None] * values - ratio @ outputs
    np.testing.assert_allclose(al.mean_influence(HEAD, SHIFTED, y), psi, atol=2e-4)


def test_influence_has_mean_zero_and_the_covariance_it_claims():
    y = SHIFTED.sample(200_000, 1)
    psi = al.mean_influence(HEAD, SHIFTED, y)
    assert (np.abs(psi.mean(axis=0)) < 4 * psi.std(axis=0) / np.sqrt(len(y))).all()
    products = psi[:, :, None] * psi[:, None, :]
    stderr = products.std(axis=0) / np.sqrt(len(y))
    gap = np.abs(products.mean(axis=0) - al.mean_covariance(HEAD, SHIFTED))
    assert (gap < 4 * stderr).all()


def test_finite_populations_by_sums():
    """The influence of a reweighted token is the derivative of the mean output."""
    points = RNG.standard_normal((12, 3))
    tokens = al.Empirical(points)
    psi = al.mean_influence(HEAD, tokens, points)
    scores = HEAD.tilts(points) @ points.T
    psi_s = population_responses(scores, points @ HEAD.V.T, tokens.weights)[1][0].influences()

    def moments(weights):
        measure = al.Empirical(points, weights)
        outputs = al.limit(HEAD, measure)(points)
        mean = weights @ outputs
        return mean, (weights * (outputs - mean).T) @ (outputs - mean)

    h = 1e-5
    for k in (0, 5):
        direction = np.eye(12)[k] - tokens.weights
        up, down = moments(tokens.weights + h * direction), moments(tokens.weights - h * direction)
        np.testing.assert_allclose(psi[k], (up[0] - down[0]) / (2 * h), atol=1e-7)
        np.testing.assert_allclose(psi_s[k], (up[1] - down[1]) / (2 * h), atol=1e-7)
    expected = (tokens.weights * psi.T) @ psi
    np.testing.assert_allclose(al.mean_covariance(HEAD, tokens), expected)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [al.Sphere(3), al.Cube(3), al.Ball(3)])
def test_other_measures_against_draws(tokens):
    n = 400
    result = np.trace(al.mean_covariance(HEAD, tokens))
    rng = np.random.default_rng(2)
    reference = al.limit(HEAD, tokens)(tokens.points(1 << 14)).mean(axis=0)
    squares = []
    for _ in range(600):
        y = tokens.sample(n, rng)
        squares.append(n * ((HEAD(y, y).mean(axis=0) - reference) ** 2).sum())
    squares = np.array(squares)
    assert abs(result - squares.mean()) < 4 * squares.std() / np.sqrt(len(squares)) + 0.02 * result
