import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlimit.sparse.saddle_point import fixed_point


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
