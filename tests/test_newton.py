"""Newton's descent against minima known in closed form."""

import numpy as np
import pytest

from attnlimit.newton import descend


def test_a_logistic_loss_with_a_ridge():
    """Separable data: without shortened steps Newton's method runs away from zero."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 3)) * [1.0, 100.0, 1e-3]
    signs = np.sign(rows @ [1.0, 0.02, 3.0])
    margins = rows * signs[:, None]

    def value(x):
        return float(np.logaddexp(0, -margins @ x).mean() + 1e-6 * x @ x / 2)

    def slopes(x):
        slope = -1 / (1 + np.exp(margins @ x))
        gradient = margins.T @ slope / len(rows) + 1e-6 * x
        curved = margins * (slope * (-1 - slope))[:, None]
        return gradient, curved.T @ margins / len(rows) + 1e-6 * np.eye(3)

    result = descend(value, slopes, np.zeros(3), tolerance=1e-14, steps=100)
    assert result.decrement <= 1e-14 * result.value
    assert np.abs(slopes(result.x)[0]).max() < 1e-6
    for nearby in result.x + 1e-3 * rng.standard_normal((20, 3)):
        assert value(nearby) >= result.value


def test_a_square_takes_one_step_however_scaled():
    hessian = np.diag([1e-12, 1.0, 1e12])
    target = np.array([3.0, -2.0, 1.0])
    result = descend(
        lambda x: float((x - target) @ hessian @ (x - target) / 2 + 1),
        lambda x: (hessian @ (x - target), hessian),
        np.zeros(3),
        tolerance=1e-12,
        steps=5,
        longest=lambda x, move: 2.0,
    )
    np.testing.assert_allclose(result.x, target, rtol=1e-9)
    assert result.steps == 2


def test_it_says_how_far_it_got_when_no_step_helps():
    result = descend(
        lambda x: float(abs(x[0])),
        lambda x: (np.array([-1.0]), np.eye(1)),  # uphill
        np.array([1.0]),
        tolerance=0.0,
        steps=10,
    )
    assert result.x[0] == 1.0
    assert result.decrement == pytest.approx(1.0)
