import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlimit.sparse import SparseTask
from attnlimit.sparse.losses import as_loss
from attnlimit.sparse.quadrature import feature_points
from attnlimit.sparse.saddle_point import Saddle, SaddleSystem, fixed_point


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000))
def test_linear_maps_are_solved_even_where_iteration_diverges(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((2, 2))
    A *= rng.uniform(0.5, 1.4) / np.abs(np.linalg.eigvals(A)).max()
    if abs(np.linalg.det(np.eye(2) - A)) < 1e-2:
        return
    b = rng.standard_normal(2)
    x, residual, _ = fixed_point(lambda x: A @ x + b, np.zeros(2), max_move=100.0)
    assert residual < 1e-9
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(2) - A, b), atol=1e-6)


def test_no_fixed_point_is_reported_with_the_best_residual():
    _, residual, steps = fixed_point(lambda x: x + 1.0, np.zeros(1), max_steps=20)
    assert residual == 1.0
    assert steps == 20


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_steins_identity_gives_the_mean_curvature_with_few_points(loss):
    points = feature_points(SparseTask(20, 2, 3.0), "attention", 0.8, 1.0, 8)
    system = SaddleSystem(points, as_loss(loss), 0.1, 2.0)
    at = Saddle(query_weight=1.0, signal_weight=0.3, bias=-0.4, rest=0.5, chi=0.7)
    gamma = at.chi * points.rho**2
    _, slope, curvature = system.loss.envelope_slopes(system.scores(at), gamma, points.label)
    expected = points.mean(points.rho**2 * curvature)
    assert system._response(at, slope) == pytest.approx(expected, rel=0.03)
