import numpy as np
import pytest

import attnlimit as al
from attnlimit.curve import Curve, Diagnostics
from attnlimit.simulate.fit import heavy_share

N = np.array([100, 200, 400, 800, 1600])


def curve(value, stderr, *, statistic="mean", replicates=50, covariance=None, share=None):
    value = np.asarray(value, dtype=float)
    return Curve(
        statistic=statistic,
        n=N[: len(value)],
        value=value,
        stderr=np.asarray(stderr, dtype=float) * np.ones(len(value)),
        method="monte carlo",
        covariance=covariance,
        replicates=replicates,
        diagnostics=Diagnostics(largest_share=share),
    )


@pytest.mark.parametrize(("statistic", "power"), [("mean", 2), ("mean_norm", 1), ("uniform", 1)])
def test_an_exact_power_law_is_recovered(statistic, power):
    value = (3.0 * N**-0.37) ** power
    fit = al.fit_rate(curve(value, 0.01 * value, statistic=statistic))
    assert fit.beta == pytest.approx(0.37)
    low, high = fit.interval(0.9)
    assert low < 0.37 < high
    assert fit.p_value > 0.99


def correlated(rng, truth, relative):
    """Points that share draws, as nested prefixes do, with their joint covariance."""
    size = len(truth)
    correlation = np.sqrt(np.minimum.outer(N, N) / np.maximum.outer(N, N))
    covariance = relative**2 * correlation * np.outer(truth, truth)
    value = truth + np.linalg.cholesky(covariance) @ rng.standard_normal(size)
    return curve(value, relative * truth, covariance=covariance)


def test_stderr_and_interval_are_honest_with_correlated_points():
    rng = np.random.default_rng(0)
    truth = N**-1.0
    fits = [al.fit_rate(correlated(rng, truth, 0.05)) for _ in range(400)]
    betas = np.array([fit.beta for fit in fits])
    assert np.std(betas) == pytest.approx(np.mean([fit.stderr for fit in fits]), rel=0.12)
    covered = [fit.interval(0.9)[0] < 0.5 < fit.interval(0.9)[1] for fit in fits]
    assert 0.85 < np.mean(covered) < 0.95
    p_values = np.array([fit.p_value for fit in fits])
    assert 0.03 < (p_values < 0.1).mean() < 0.18


def test_bent_curves_are_noticed():
    value = N**-1.0 * (1 + (np.log(N) - np.log(400)) ** 2)
    assert al.fit_rate(curve(value, 0.01 * value)).p_value < 1e-3


@pytest.mark.parametrize("relative", [1e-3, 0.1])
def test_the_slope_of_a_bent_curve_does_not_depend_on_noisy_standard_errors(relative):
    value = N**-1.0 * (1 + (np.log(N) - np.log(200)) ** 2)
    rng = np.random.default_rng(0)
    errors = relative * value * np.exp(0.3 * rng.standard_normal((20, len(N))))
    slopes = [al.fit_rate(curve(value, error)).beta for error in errors]
    assert np.ptp(slopes) < 1e-12
    assert slopes[0] == pytest.approx(al.fit_rate(curve(value, 0.0)).beta)


def test_theory_is_fitted_in_the_same_way():
    value = N**-1.0
    theory = Curve("mean", N, N**-0.9, np.zeros(5), "theory")
    fit = al.fit_rate(curve(value, 0.02 * value), predicted=theory)
    assert fit.predicted == pytest.approx(0.45)
    assert al.fit_rate(theory).beta == pytest.approx(0.45)
    assert "predicted" in str(fit)
    assert fit.to_frame()["predicted"][0] == pytest.approx(0.45)


def test_theory_states_what_its_own_errors_make_of_the_slope():
    value, rng = N**-1.0, np.random.default_rng(1)
    theory = Curve("mean", N, value, np.zeros(5), "theory", numerical_error=0.02 * value)
    fit = al.fit_rate(curve(value, 0.01 * value), predicted=theory)
    off = value * (1 + 0.02 * rng.standard_normal((4000, len(N))))
    slopes = [al.fit_rate(Curve("mean", N, entry, np.zeros(5), "theory")).beta for entry in off]
    assert fit.predicted_error == pytest.approx(np.std(slopes), rel=0.06)
    assert f"0.5000 ± {fit.predicted_error:.4f}" in str(fit)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (curve([1.0, 0.5, 0.2], 0.01), "values of n"),
        (curve(N**-1.0, 1e-5, replicates=3), "draws"),
        (curve([1.0, 0.5, -0.2, 0.1], 0.01), "positive"),
        (curve([1.0, 0.5, 0.2, 0.1], [0.01, 0.01, 0.01, 0.09]), "more replicates"),
    ],
)
def test_too_little_data_is_refused(bad, message):
    with pytest.raises(al.UnreliableFit, match=message):
        al.fit_rate(bad)


def test_a_theory_curve_of_another_grid_is_refused():
    theory = Curve("mean", N + 1, N**-0.9, np.zeros(5), "theory")
    with pytest.raises(al.BadInput):
        al.fit_rate(curve(N**-1.0, 1e-5), predicted=theory)


def test_heavy_tails_are_marked():
    value = N**-1.0
    heavy = curve(value, 0.05 * value, replicates=200, share=np.array([0.9]))
    fit = al.fit_rate(heavy)
    assert fit.heavy_tailed
    assert "too short" in str(fit)
    with pytest.raises(al.BadInput):
        fit.interval(1.5)


def test_light_tails_are_rarely_called_heavy():
    """Squares of normal numbers, 20 draws and 8: at most a few in a hundred."""
    head, tokens = al.Head(0.1 * np.eye(2)), al.Gaussian(dim=2)
    for draws in (8, 20):
        curves = [
            al.measure(head, tokens, "mean", [20, 40, 80, 160], draws, seed=k) for k in range(40)
        ]
        assert sum(al.fit_rate(curve).heavy_tailed for curve in curves) <= 4


@pytest.mark.parametrize("points", [1, 4])
def test_squares_of_normal_numbers_are_called_heavy_once_in_a_hundred(points):
    """At one of `points` n that are independent."""
    squares = np.random.default_rng(1).standard_normal((20_000, points, 20)) ** 2
    deviations = (squares - squares.mean(axis=-1, keepdims=True)) ** 2
    shares = deviations.max(axis=-1) / deviations.sum(axis=-1)
    called = (shares > heavy_share(20, points)).any(axis=1).mean()
    assert called == pytest.approx(0.01, abs=0.004)


def test_heavy_tails_are_found_with_enough_draws():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(40):
        deviations = (rng.standard_normal(400) ** 8 - 105) ** 2
        shares.append(deviations.max() / deviations.sum())
    assert np.mean(np.array(shares) > heavy_share(400, 4)) > 0.5


def test_a_bent_theory_curve_is_no_straight_line():
    head, tokens = al.Head([[1.5]]), al.Gaussian(dim=1)
    predicted = al.predict(head, tokens, "pointwise", [10, 100, 1000, 10**4])
    fit = al.fit_rate(predicted)
    assert fit.stderr > 1e-3
    assert fit.p_value < 0.01
    straight = al.fit_rate(Curve("mean", N, 1.0 / N, np.zeros(5), "theory"))
    assert straight.beta == pytest.approx(0.5)
    assert straight.stderr < 1e-6


@pytest.mark.parametrize("wrong", [None, 3.0, [1, 2]])
def test_only_curves_have_rates(wrong):
    with pytest.raises(al.BadInput, match="Curve"):
        al.fit_rate(wrong)


def test_the_interval_of_a_theory_curve_has_its_standard_error():
    curve = al.predict(al.Head([[1.5]]), al.Gaussian(dim=1), "pointwise", [10, 100, 1000, 10**4])
    fit = al.fit_rate(curve)
    assert np.std(fit.bootstrap) == pytest.approx(fit.stderr, rel=0.05)
    assert fit.freedom == 2
