"""The critical temperature: Poisson points against draws, limits against the exact law."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.theory.low_temperature.critical import averaging_law, nearest_law


def close(drawn, predicted, errors=4.0):
    stderr = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - predicted) < errors * stderr).all()


@pytest.mark.parametrize(("exponent", "theta"), [(0.5, 0.1), (1.0, 1.0), (4.5, 4.0), (24.5, 60.0)])
def test_the_law_is_that_of_drawn_points(exponent, theta):
    arrivals = np.cumsum(np.random.default_rng(1).exponential(size=(2000, 1500)), axis=1)
    u = theta * arrivals ** (1 / exponent)
    p = np.exp(u[:, :1] - u)
    p /= p.sum(axis=1, keepdims=True)
    law = al.critical_law(exponent, theta)
    gap = (p * u).sum(axis=1)
    close((p**2).sum(axis=1), law.participation)
    close(gap, law.gap)
    close((gap - law.gap) ** 2, law.gap_variance)
    close(2 * (p**2 * u).sum(axis=1), law.across)
    close(p[:, :4], al.ordered_weights(exponent, theta, 4))


def test_ordered_weights_are_all_of_them():
    weights = al.ordered_weights(1.0, 1.5, 40)
    assert weights.sum() == pytest.approx(1, abs=1e-7)
    assert (np.diff(weights) < 0).all()


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 4.5, 24.5])
def test_many_keys_below_and_one_above(exponent):
    names = ("participation", "gap", "gap_variance", "across")
    typical = float(averaging_law(exponent, 1.0).participation)
    for share, bound in ((1e-4, 1e-2), (1e-6, 1e-3)):  # in high dimension later: theta < a/2
        theta = (share * np.exp(-exponent / 2) / typical) ** (1 / exponent)
        for name in names:
            ratio = getattr(averaging_law(exponent, theta), name) / getattr(
                al.critical_law(exponent, theta), name
            )
            assert ratio == pytest.approx(1, abs=bound)
    if exponent > 0.5:
        theta = 40 * exponent
        law, actual = al.critical_law(exponent, theta), nearest_law(exponent, theta)
        assert law.participation == pytest.approx(actual.participation, abs=2e-3)
        assert law.gap == pytest.approx(actual.gap, rel=2e-3)


def test_the_random_energy_model_is_the_limit_of_high_dimension():
    """With theta = s a and a large the weights are Poisson-Dirichlet: E sum p^2 = 1 - 1/s."""
    law = al.critical_law(400.0, 400.0 * np.array([1.25, 2.0, 4.0]))
    assert law.participation == pytest.approx([0.2, 0.5, 0.75], abs=0.02)


def test_the_sphere_reaches_its_limit_law_as_n_grows():
    regimes = al.sphere_regimes(al.Sphere(3), [10**2, 10**4, 10**12], [0.3, 1.0, 10.0])
    gap = np.abs(regimes.participation / regimes.critical.participation - 1)
    assert (gap[:, 1] < gap[:, 0] / 20).all()
    assert (gap[:, 2] < 1e-8).all()
    assert (np.abs(regimes.error / regimes.law_error("critical") - 1)[:, 2] < 1e-5).all()
    assert list(regimes.regime) == ["averaging", "critical", "nearest"]
    assert len(regimes.to_frame()) == 9


def test_in_high_dimension_the_exponent_that_n_keys_see_is_another():
    regimes = al.sphere_regimes(al.Sphere(50), [10**4], [24.5, 60.0])
    assert (regimes.participation > 1.3 * regimes.critical.participation).all()
    assert regimes.adapted.participation == pytest.approx(regimes.participation, rel=0.03)
    assert regimes.adapted.exponent == pytest.approx(17.17, abs=0.01)


@pytest.mark.parametrize("tokens", [al.Sphere(5), al.Ball(3, radius=2.0)])
def test_drawn_keys_on_the_sphere(tokens):
    regimes = al.sphere_regimes(tokens, [300], [0.3, 3.0])
    keys = tokens.sample(300 * 4000, 3).reshape(4000, 300, tokens.dim)
    for i, beta in enumerate(regimes.beta[:, 0]):
        scores = beta * keys[:, :, 0]
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        miss = np.einsum("rn,rnd->rd", p, keys) - tokens.extreme(np.eye(tokens.dim)[0])
        close((p**2).sum(axis=1), regimes.participation[i, 0])
        close((miss**2).sum(axis=1), regimes.error[i, 0] ** 2)


def test_a_density_moves_the_output_along_its_score():
    """Keys of density e^<k,y>: beta times the step across the query tends to the tangent of k."""
    query, drift = np.eye(4)[0], np.array([0.3, 0.7, -0.2, 0.0])
    for beta, bound in ((1e3, 2e-3), (1e5, 2e-5)):
        step = beta * (al.Sphere(4).tilted_mean(beta * query + drift) - query)
        assert step[1:] == pytest.approx(drift[1:], abs=bound)


def test_bad_input():
    for wrong in (lambda: al.critical_law(0.0, 1.0), lambda: al.critical_law(1.0, -1.0)):
        with pytest.raises(al.BadInput, match="positive"):
            wrong()
    with pytest.raises(al.BadInput, match="hardmax_error"):
        al.critical_law(0.5, 100.0)
    with pytest.raises(al.BadInput, match="infinitely many"):
        al.critical_law(24.5, 1e-12)
    with pytest.raises(al.BadInput, match="Sphere or a Ball"):
        al.sphere_regimes(al.Gaussian(dim=3), [10], [1.0])
    with pytest.raises(al.BadInput, match="name"):
        al.sphere_regimes(al.Sphere(3), [10], [1.0]).law_error("other")
