"""Influence functions, the two-query law, projections: closed forms against sums and draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.covariance.output_energy import joint_moments
from attnlimit.theory.pairs.covariance.projection import Projection
from attnlimit.theory.pairs.gaussian import gaussian_own_moment, gaussian_pair_moment
from attnlimit.theory.pairs.mean import mean_error

RNG = np.random.default_rng(7)
HEAD = al.Head(0.25 * RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))
SHIFTED = al.Gaussian(np.diag([1.0, 0.7, 0.4]), mean=[0.3, -0.5, 0.2])


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 0.97))
def test_one_dimension_has_a_closed_form(h):
    found = al.mean_covariance(al.Head([[h]]), al.Gaussian(dim=1))
    np.testing.assert_allclose(found, h**2 + 2 * h + (1 - h**4) ** -1.5, rtol=1e-11)


def test_reference_file(reference):
    section = reference["mean_covariance_gaussian"]
    for case in section["cases"]:
        found = al.mean_covariance(al.Head([[case["H"]]]), al.Gaussian(dim=1))
        np.testing.assert_allclose(found[0, 0], case["value"], rtol=section["rtol"])


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
    """psi and psi_S in closed form against a quasi-random average over queries."""
    y = SHIFTED.sample(6, 0)
    x = SHIFTED.points(1 << 15)
    tilts = HEAD.tilts(x)
    ratio = np.exp(y @ tilts.T - SHIFTED.cgf(tilts)) / len(x)
    outputs = al.limit(HEAD, SHIFTED)(x)
    mean, own = outputs.mean(axis=0), al.limit(HEAD, SHIFTED)(y)
    values = y @ HEAD.V.T
    psi = own - mean + ratio.sum(axis=1)[:, None] * values - ratio @ outputs
    np.testing.assert_allclose(al.mean_influence(HEAD, SHIFTED, y), psi, atol=2e-4)
    centred = outputs - mean
    covariance = centred.T @ centred / len(x)
    for k in range(len(y)):
        pull = (ratio[k][:, None] * (values[k] - outputs)).T @ centred
        expected = np.outer(own[k] - mean, own[k] - mean) - covariance + pull + pull.T
        found = al.covariance_influence(HEAD, SHIFTED, y[k])
        np.testing.assert_allclose(found[0], expected, atol=2e-3)


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
    psi_s = al.covariance_influence(HEAD, tokens, points)

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
    found = np.trace(al.mean_covariance(HEAD, tokens))
    rng = np.random.default_rng(2)
    reference = al.limit(HEAD, tokens)(tokens.points(1 << 14)).mean(axis=0)
    squares = []
    for _ in range(600):
        y = tokens.sample(n, rng)
        squares.append(n * ((HEAD(y, y).mean(axis=0) - reference) ** 2).sum())
    squares = np.array(squares)
    assert abs(found - squares.mean()) < 4 * squares.std() / np.sqrt(len(squares)) + 0.02 * found


@pytest.mark.parametrize("n", [2, 3, 6, 40])
def test_two_queries_that_are_keys_too(n):
    """E[Gamma_n . Gamma_n'] and E|Gamma_n|^2 given the queries, against 200,000 draws."""
    rng = np.random.default_rng(n)
    white = WhitenedHead(
        0.8 * RNG.standard_normal((2, 2)), np.array([0.4, -0.2]), RNG.standard_normal((3, 2))
    )
    z = rng.standard_normal((2, 2))
    tilts = white.tilts(z)
    keys = rng.standard_normal((200_000, n, 2))
    keys[:, :2] = z

    def output(tilt):
        scores = keys @ tilt
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return ((weights[:, :, None] * keys).sum(axis=1) - white.offset) @ white.values.T

    limits = (tilts - white.offset) @ white.values.T
    joint = (output(tilts[0]) * output(tilts[1])).sum(axis=1)
    predicted = gaussian_pair_moment(white, z[0], z[1], np.array([n]))[0] + limits[0] @ limits[1]
    assert abs(joint.mean() - predicted) < 4 * joint.std() / np.sqrt(len(joint)) + 1e-5
    keys[:, 1] = rng.standard_normal((200_000, 2))
    square = (output(tilts[0]) ** 2).sum(axis=1)
    predicted = gaussian_own_moment(white, z[0], np.array([n]))[0] + limits[0] @ limits[0]
    assert abs(square.mean() - predicted) < 4 * square.std() / np.sqrt(len(square)) + 1e-5


@pytest.mark.parametrize("h", [0.2, 0.5, 0.8])
def test_the_two_query_law_tends_to_the_influence_covariance(h):
    head, tokens = al.Head([[h]]), al.Gaussian(dim=1)
    n = np.array([10**12])  # close to the horizon 1 the limit is reached slowly
    found = mean_error(head, tokens, n)
    np.testing.assert_allclose(n * found.mse, al.mean_covariance(head, tokens)[0, 0], rtol=0.01)


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
def test_population_two_query_law(scale):
    """Resampled tokens of a small population: within 4 standard errors of draws."""
    rng = np.random.default_rng(5)
    tokens = al.Empirical(rng.standard_normal((50, 4)))
    head = al.Head(scale * rng.standard_normal((4, 4)) / 2, rng.standard_normal((3, 4)))
    n = np.array([2, 12, 80])
    found = mean_error(head, tokens, n, picks=400)
    centre = head(tokens.locations, tokens.locations).mean(axis=0)
    for k, size in enumerate(n):
        squares = []
        for _ in range(1500):
            y = tokens.sample(int(size), rng)
            squares.append(((head(y, y).mean(axis=0) - centre) ** 2).sum())
        stderr = np.std(squares) / np.sqrt(len(squares))
        gap = abs(found.mse[k] - np.mean(squares))
        assert gap < 4 * np.hypot(stderr, found.numerical_error[k])
        assert found.numerical_error[k] < 0.1 * found.mse[k]


def test_joint_moments_of_output_and_participation():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((200_000, 8))
    p = np.exp(2.0 * y)
    p /= p.sum(axis=1, keepdims=True)
    g, participation = (p * y).sum(axis=1), (p**2).sum(axis=1)
    samples = {
        "g": g, "g2": g**2, "g3": g**3, "g4": g**4, "P": participation,
        "gP": g * participation, "g2P": g**2 * participation, "PP": participation**2,
    }  # fmt: skip
    for name, value in joint_moments(2.0, 8).items():
        stderr = samples[name].std() / np.sqrt(len(y))
        assert abs(value - samples[name].mean()) < 4 * stderr


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
        scores = 1.2 * keys @ np.swapaxes(keys, 1, 2)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        outputs = (weights @ keys / weights.sum(axis=2, keepdims=True)).mean(axis=(1, 2))
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
