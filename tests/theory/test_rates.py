import numpy as np
import pytest

import attnlimit as al


def head(h):
    return al.Head([[h]])


@pytest.mark.parametrize(("h", "beta"), [(0.5, 0.5), (1.0, 0.5), (1.5, 0.3077), (2, 0.2), (3, 0.1)])
def test_mean_exponent(h, beta):
    rate = al.rate(head(h), al.Gaussian(dim=1), "mean")
    np.testing.assert_allclose(rate.beta, beta, atol=1e-4)
    assert al.rate(head(h), al.Gaussian(dim=1), "covariance").beta == rate.beta
    assert rate.horizon == pytest.approx(h)
    assert rate.rms_beta <= rate.beta + 1e-12


@pytest.mark.parametrize("h", [2.0, 3.0])
def test_the_root_mean_square_tends_to_its_exponent(h):
    law = al.predict(head(h), al.Gaussian(dim=1), "mean", [10**4, 10**6, 10**10])
    exponent = al.rate(head(h), al.Gaussian(dim=1), "mean").rms_beta
    off = np.abs(law.local_rate - exponent)
    assert off[0] > off[1] > off[2]
    assert off[2] < 0.015


def test_pointwise_exponent_is_continuous_and_falls():
    values = [al.rate(head(h), al.Gaussian(dim=1), "pointwise").beta for h in (0.3, 0.7072, 1, 2)]
    np.testing.assert_allclose(values[:2], 0.5, atol=1e-4)
    assert values[2] == pytest.approx((np.sqrt(1.25) - 0.5) / 2)
    assert values[3] < values[2]


def test_bounded_tokens_are_always_parametric():
    rng = np.random.default_rng(0)
    for tokens in (al.Sphere(1, 50), al.Cube(1), al.Empirical(rng.standard_normal((9, 1)))):
        assert al.rate(head(100.0), tokens, "mean").beta == 0.5


def test_a_mixture_is_as_slow_as_its_widest_component():
    mixture = al.Mixture([0.9, 0.1], [al.Gaussian(dim=1), al.Gaussian(dim=1, variance=4.0)])
    wide = al.rate(head(0.5), al.Gaussian(dim=1, variance=4.0), "mean")
    assert al.rate(head(0.5), mixture, "mean").beta == pytest.approx(wide.beta)


def test_laplace_queries_have_no_rate():
    with pytest.raises(al.NoLimitError):
        al.rate(head(0.5), al.Laplace(1), "mean")


def test_horizon_is_invariant_and_homogeneous():
    rng = np.random.default_rng(1)
    matrix, root = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    tokens = al.Gaussian(root @ root.T)
    h = al.horizon(al.Head(matrix), tokens)
    assert al.horizon(al.Head(matrix).scaled(2.5), tokens) == pytest.approx(2.5 * h)
    change = rng.standard_normal((3, 3))
    inverse = np.linalg.inv(change)
    moved = al.Gaussian(change @ tokens.cov() @ change.T)
    assert al.horizon(al.Head(inverse.T @ matrix @ inverse), moved) == pytest.approx(h)


def test_one_mixture_has_one_horizon():
    parts = [al.Gaussian(np.diag([1.0, 0.3])), al.Gaussian(0.4 * np.eye(2), mean=[2.0, -1.0])]
    tokens, matrix = al.Mixture([0.7, 0.3], parts), al.Head([[0.8, 0.2], [-0.1, 0.5]])
    assert al.rate(matrix, tokens, "mean").horizon == al.horizon(matrix, tokens)


def test_horizon_of_an_empirical_measure_uses_its_covariance():
    points = np.random.default_rng(2).standard_normal((50, 2))
    tokens = al.Empirical(points)
    covariance = np.cov(points.T, bias=True)
    values = np.linalg.eigvals(covariance)
    assert al.horizon(al.Head(np.eye(2)), tokens) == pytest.approx(values.max())


def test_printing():
    text = str(al.rate(head(2.0), al.Gaussian(dim=1), "mean"))
    assert "0.2" in text
    assert "horizon 2" in text
    with pytest.raises(al.BadInput):
        al.rate(head(2.0), al.Gaussian(dim=1), "variance")
