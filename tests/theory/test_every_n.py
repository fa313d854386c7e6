"""Predicted curves are computed at every n that is given, and never through other n."""

import numpy as np
import pytest
from scipy.special import ndtri

import attnlimit as al
from attnlimit.theory.one_query.pointwise import average_pointwise_error

RNG = np.random.default_rng(3)
SETTINGS = {
    "signs": (al.Head(3 * np.eye(2)), al.Signs(2)),
    "cube": (al.Head(2 * RNG.standard_normal((2, 2))), al.Cube(2)),
    "sphere": (al.Head(6 * RNG.standard_normal((3, 3))), al.Sphere(3)),
    "gaussian": (al.Head(2 * np.eye(3)), al.Gaussian(dim=3)),
    "empirical": (al.Head(np.eye(2)), al.Empirical(RNG.standard_normal((40, 2)))),
}


def test_a_curve_that_falls_steeply_between_two_n():
    """A spline through a few n gave 1.829e-6."""
    head = al.Head(3 * np.eye(2))
    for n in ([2, 300], [300], [2, 7, 300, 10**9]):
        curve = al.predict(head, al.Signs(2), "pointwise", n)
        np.testing.assert_allclose(curve.value[n.index(300)], 1.3769660e-6, rtol=1e-7)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_value_at_n_does_not_depend_on_other_n(name):
    head, tokens = SETTINGS[name]
    many = [2, 3, 17, 300, 4000, 10**9]
    together = al.predict(head, tokens, "pointwise", many)
    for i, n in enumerate(many):
        alone = al.predict(head, tokens, "pointwise", [n])
        np.testing.assert_allclose(alone.value[0], together.value[i], rtol=1e-9)
        np.testing.assert_allclose(alone.local_rate[0], together.local_rate[i], atol=1e-7)


def test_a_local_rate_is_the_slope_at_its_n():
    head, tokens = SETTINGS["signs"]
    n = np.arange(46, 55)
    curve = al.predict(head, tokens, "pointwise", n)
    slope = -np.polyfit(np.log(n), np.log(curve.root), 2)
    at = 2 * slope[0] * np.log(50) + slope[1]
    np.testing.assert_allclose(curve.local_rate[4], at, rtol=0.02)


@pytest.mark.parametrize("scale", [0.3, 4.0, 30.0, 200.0])
def test_the_average_over_gaussian_queries_states_its_error(scale):
    """Against the exact law at the middles of 1000 equally likely parts, in pairs of one size."""
    head, tokens, n = al.Head(scale * np.eye(1)), al.Gaussian(dim=1), np.array([5, 10**6])
    value, error = average_pointwise_error(head, tokens, n)
    x = ndtri(0.5 + (np.arange(500) + 0.5) / 1000)[:, None]
    middles = al.pointwise_error(head, tokens, x, n).mse.mean(axis=0)
    np.testing.assert_allclose(value, middles, rtol=0.02)
    assert (error < 0.02 * value).all()


def test_scores_too_sharp_for_a_law_are_refused():
    for scale in (3000.0, 1e20):
        for tokens in (al.Gaussian(dim=2), al.Signs(3), al.Cube(2)):
            with pytest.raises((al.BadInput, al.NotConverged)):
                al.predict(al.Head(scale * np.eye(tokens.dim)), tokens, "pointwise", [2, 300])


def test_what_cannot_be_a_mean_square_raises(monkeypatch):
    from attnlimit.theory import predict as module

    for wrong in (np.nan, np.inf, -1.0, 0.0):
        monkeypatch.setattr(
            module, "_exact", lambda h, t, s, n, w=wrong: (np.full(len(n), w), np.zeros(len(n)))
        )
        with pytest.raises(al.NotConverged, match="came out as"):
            al.predict(al.Head(np.eye(2)), al.Sphere(2), "pointwise", [5])


def test_a_constant_output_has_no_error():
    curve = al.predict(al.Head(np.eye(2), np.zeros((1, 2))), al.Sphere(2), "pointwise", [5, 50])
    np.testing.assert_array_equal(curve.value, 0.0)
    assert np.isnan(curve.local_rate).all()


@pytest.mark.parametrize("cov", [np.eye(2), np.zeros((2, 2))])
def test_a_head_without_scores_averages_at_every_query(cov):
    curve = al.predict(al.Head(np.zeros((2, 2))), al.Gaussian(cov), "pointwise", [5, 50])
    np.testing.assert_allclose(curve.value, np.trace(cov) / np.array([5, 50]))


@pytest.mark.parametrize("statistic", ["mean", "pointwise"])
def test_a_rare_component_counts_at_its_weight(statistic):
    """Two tokens in a thousand look from afar: quasi-random rules of a few hundred miss them."""
    rare = al.Gaussian(0.1 * np.eye(2), mean=[4.0, 4.0])
    tokens = al.Mixture([0.998, 0.002], [al.Gaussian(dim=2), rare])
    head = al.Head(0.25 * np.eye(2))
    curve = al.predict(head, tokens, statistic, [60])
    # tests/brute.py, 60,000 sets and 400,000 queries: errors below 0.5 %
    truth = {"mean": 0.0614, "pointwise": 0.0727}[statistic]
    assert curve.value[0] == pytest.approx(truth, rel=0.03)
    assert curve.numerical_error[0] < 0.3 * truth


def test_more_draws_than_given_tokens_are_named():
    """Twenty thousand heavy-tailed draws say nothing of ten million."""
    tokens = al.Empirical(np.random.default_rng(0).standard_t(2, (500, 2)))
    head = al.Head(0.3 * np.eye(2))
    assert "draws with replacement from 500 given tokens" in str(al.rate(head, tokens, "pointwise"))
    few, many = (al.predict(head, tokens, "pointwise", [n]) for n in (500, 10**7))
    assert not any("exceeds" in note for note in few.notes)
    assert any("n exceeds the 500 given tokens" in note for note in many.notes)
