import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlimit.sparse import SparseTask
from attnlimit.sparse.losses import LogisticLoss, SquareLoss
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


class KinkedLogistic(LogisticLoss):
    """Treated as a loss with kinks, whose curvature is known by Stein's identity only."""

    smooth = False


class KinkedSquare(SquareLoss):
    smooth = False


@pytest.mark.parametrize(
    ("loss", "kinked"), [(LogisticLoss(), KinkedLogistic()), (SquareLoss(), KinkedSquare())]
)
def test_steins_identity_gives_the_mean_curvature_with_few_points(loss, kinked):
    points = feature_points(SparseTask(20, 2, 3.0), "attention", 0.8, 1.0, 8)
    at = Saddle(query_weight=1.0, signal_weight=0.3, bias=-0.4, rest=0.5, chi=0.7)
    plain, by_noise = (SaddleSystem(points, how, 0.0, 2.0).update(at) for how in (loss, kinked))
    assert by_noise[1] == pytest.approx(plain[1], rel=0.03)
