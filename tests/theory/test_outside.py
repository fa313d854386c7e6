"""A measure from outside the package has every law that its methods allow."""

import numpy as np
import pytest

import attnlimit as al
import outside

NORMAL = outside.MEASURES["normal"]
TWIN = al.Gaussian(NORMAL.cov(), mean=NORMAL.mean())
RNG = np.random.default_rng(8)
HEAD = al.Head(0.6 * RNG.standard_normal((2, 2)), RNG.standard_normal((3, 2)))
NEEDLE_HEAD = al.Head(0.7 * RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))
WEAK = HEAD.scaled(0.4)
X = np.array([[0.5, -1.0], [2.0, 0.3]])
N = [5, 300]
LAWS = {
    "limit": lambda t: al.limit(HEAD, t)(X),
    "horizon": lambda t: al.horizon(HEAD, t),
    "rate": lambda t: al.rate(HEAD, t, "mean").beta,
    "fluctuation": lambda t: al.fluctuation(HEAD, t, X).covariance,
    "pointwise": lambda t: al.pointwise_error(HEAD, t, X, N).mse,
    "mean covariance": lambda t: al.mean_covariance(HEAD, t),
    "mean influence": lambda t: al.mean_influence(HEAD, t, X),
    "hardmax": lambda t: al.hardmax_error(HEAD, t, X, N).mse,
    "uniform bound": lambda t: al.uniform_bound(HEAD, t, 0.5, N).bound,
    "mean curve": lambda t: al.predict(HEAD, t, "mean", N).value,
    "covariance curve": lambda t: al.predict(WEAK, t, "covariance", [3000]).value,
    "pointwise curve": lambda t: al.predict(HEAD, t, "pointwise", N).value,
    "delta curve": lambda t: al.predict(WEAK, t, "pointwise", N, method="delta").value,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_measure_that_says_it_is_gaussian_has_the_laws_of_one(law):
    np.testing.assert_allclose(LAWS[law](NORMAL), LAWS[law](TWIN), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("statistic", ["mean", "covariance", "pointwise"])
def test_predictions_against_draws(statistic):
    tokens = outside.MEASURES["known needle"]
    n = [400, 800] if statistic == "covariance" else [10, 100]
    predicted = al.predict(NEEDLE_HEAD, tokens, statistic, n)
    measured = al.measure(NEEDLE_HEAD, tokens, statistic, n, 400, seed=5)
    room = 4 * measured.stderr + (1 if statistic == "covariance" else 4) * predicted.numerical_error
    assert (np.abs(predicted.value - measured.value) < room).all()


def test_bounded_laws_hold_too():
    tokens = outside.MEASURES["needle"]
    bound = al.uniform_bound(NEEDLE_HEAD, tokens, 1.0, [2000], delta=0.1)
    drawn = al.measure(NEEDLE_HEAD, tokens, "uniform", [2000], 20, radius=1.0)
    assert drawn.value[0] + 4 * drawn.stderr[0] < bound.bound[0] < np.inf
    assert al.rate(NEEDLE_HEAD, tokens, "covariance").beta == 0.5


def test_without_a_score_law_the_way_out_that_the_error_names_works():
    tokens, known = outside.MEASURES["needle"], outside.MEASURES["known needle"]
    x = RNG.standard_normal((2, 3))
    for ask in (
        lambda **how: al.pointwise_error(NEEDLE_HEAD, tokens, x, [4000], **how),
        lambda **how: al.predict(NEEDLE_HEAD, tokens, "pointwise", [4000], **how),
    ):
        with pytest.raises(al.BadInput, match=r'`score_law`.*method="delta"'):
            ask()
        ask(method="delta")
    with pytest.raises(al.BadInput, match='method="delta"'):
        al.budget(NEEDLE_HEAD, tokens, x, epsilon=0.1)
    delta = al.predict(NEEDLE_HEAD, tokens, "pointwise", [4000], method="delta")
    exact = al.predict(NEEDLE_HEAD, known, "pointwise", [4000])
    np.testing.assert_allclose(delta.value, exact.value, rtol=0.02)
    assert al.budget(delta, epsilon=0.2).certified > 0
