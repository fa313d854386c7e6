import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from attnlimit.errors import BadInput
from attnlimit.sparse.losses import BY_NAME, SmoothedHinge, as_loss

LOSSES = [*BY_NAME.values(), SmoothedHinge(0.1)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}")
@settings(max_examples=60, deadline=None)
@given(z=st.floats(-60, 60), log_gamma=st.floats(-12, 12), y=st.sampled_from([-1.0, 1.0]))
def test_prox_solves_its_equation(loss, z, log_gamma, y):
    gamma = np.exp(np.array([log_gamma]))
    label = np.array([y])
    eta = loss.prox(np.array([z]), gamma, label)
    gap = eta + gamma * loss.slope(eta, label) - z
    assert abs(gap[0]) < 1e-8 * (1 + abs(z) + gamma[0])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}")
def test_envelope_slopes_are_derivatives_of_the_envelope(loss):
    z = np.linspace(-4, 4, 41) + 0.013
    gamma, y = np.full(41, 0.8), np.where(np.arange(41) % 2, 1.0, -1.0)

    def envelope(z):
        eta = loss.prox(z, gamma, y)
        return loss.value(eta, y) + (z - eta) ** 2 / (2 * gamma)

    h = 1e-4
    _, slope, curvature = loss.envelope_slopes(z, gamma, y)
    np.testing.assert_allclose(slope, (envelope(z + h) - envelope(z - h)) / (2 * h), atol=1e-6)
    second = (envelope(z + h) - 2 * envelope(z) + envelope(z - h)) / h**2
    np.testing.assert_allclose(curvature, second, atol=1e-4)


def test_prox_is_the_minimiser():
    for loss in LOSSES:
        actual = minimize_scalar(
            lambda x, loss=loss: float(
                loss.value(np.array([x]), np.array([1.0]))[0] + (x + 1.3) ** 2 / (2 * 2.5)
            )
        ).x
        eta = loss.prox(np.array([-1.3]), np.array([2.5]), np.array([1.0]))[0]
        assert eta == pytest.approx(actual, abs=1e-5)


def test_initial_pull():
    assert as_loss("logistic").initial_pull == 0.5
    assert as_loss("square").initial_pull == 1.0
    assert as_loss("hinge").initial_pull == 1.0


def test_wrong_losses_are_refused():
    with pytest.raises(BadInput, match="logistic"):
        as_loss("hinged")
    with pytest.raises(BadInput, match="width"):
        SmoothedHinge(0.0)
