"""Tokens without a limit are refused with the reason, and attention over them does not converge."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.theory.limit import check_ball


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_laplace_past_its_bound_names_the_bound(scale):
    tokens, head = al.Laplace(2, scale), al.Head(np.eye(2))
    at_bound = np.array([0.0, 1 / scale])
    named = f"(1/scale =|past the bound) {1 / scale:g}"
    for ask in (
        lambda x: tokens.cgf(x),
        lambda x: tokens.tilted_mean(x),
        lambda x: al.limit(head, tokens)(x),
        lambda x: al.fluctuation(head, tokens, x),
        lambda x: al.pointwise_error(head, tokens, x, [10]),
        lambda x: al.pointwise_error(head, tokens, x, [10], method="delta"),
        lambda x: al.uniform_bound(head, tokens, float(np.linalg.norm(x)), [10]),
    ):
        with pytest.raises(al.NoLimitError, match=named):
            ask(at_bound)


def test_laplace_has_a_limit_without_a_central_limit_theorem():
    """Between half the bound and the bound the limit exists, its fluctuations are infinite."""
    tokens, head = al.Laplace(1), al.Head([[1.0]])
    assert np.isinf(al.fluctuation(head, tokens, [0.6]).covariance).all()
    exact = al.pointwise_error(head, tokens, [0.6], [10**3, 10**6])
    rate = -np.diff(np.log(exact.mse[0])) / np.log(1000)
    assert np.isfinite(exact.mse).all()
    assert 0 < rate[0] < 0.9  # slower than the 1/n of a central limit theorem


def test_student_tokens_have_no_limit_anywhere():
    student = al.Student(2, df=3.0)
    head = al.Head(np.eye(2))
    for x in ([1e-6, 0.0], [1.0, 2.0]):
        with pytest.raises(al.NoLimitError, match="Student"):
            al.limit(head, student)(x)
        with pytest.raises(al.NoLimitError, match="Student"):
            al.pointwise_error(head, student, x, [10])
    with pytest.raises(al.NoLimitError, match="whole ball"):
        al.uniform_bound(head, student, 1.0, [10])
    with pytest.raises(al.NoLimitError, match="no curve and no rate"):
        al.rate(head, student, "mean")


def test_student_tokens_without_moments_say_which_is_missing():
    with pytest.raises(al.NoLimitError, match="no covariance: df must exceed 2"):
        al.Student(2, df=2).cov()
    with pytest.raises(al.NoLimitError, match="no mean: df must exceed 1"):
        al.Student(2, df=1).mean()
    assert al.Student(2, df=0.5).sample(10, 0).shape == (10, 2)


def test_student_tokens_are_drawn_as_they_are_transported():
    tokens = al.Student(3, df=7, scale=2.0)
    drawn, quasi = tokens.sample(200_000, 1), tokens.points(1 << 14)
    np.testing.assert_allclose(np.cov(drawn.T), tokens.cov(), atol=0.15)
    for q in (0.9, 0.99):
        both = np.quantile(drawn, q, axis=0), np.quantile(quasi, q, axis=0)
        np.testing.assert_allclose(*both, rtol=0.05)


def participation(tokens, tilt, n, draws, seed=0):
    return al.measure(al.Head([[tilt]]), tokens, "participation", n, draws, seed, x=[1.0])


def test_measured_participation_is_that_of_the_exact_law():
    head, tokens, x, n = al.Head(np.eye(2)), al.Gaussian(dim=2), [[1.5, 0.5], [0.0, 1.0]], [10, 100]
    measured = al.measure(head, tokens, "participation", n, 1000, x=x)
    exact = al.pointwise_error(head, tokens, x, n).participation.mean(axis=0)
    assert (abs(measured.value - exact) < 4 * measured.stderr).all()
    assert (measured.stderr < 0.03 * exact).all()


def test_participation_past_the_bound_tends_to_its_stable_value():
    """Weights e^{ty} have a Pareto tail of index 1/(bt) < 1: E sum p^2 tends to 1 - 1/(bt)."""
    for tilt in (1.5, 3.0):
        curve = participation(al.Laplace(1), tilt, [20_000], 400, seed=1)
        assert abs(curve.value[0] - (1 - 1 / tilt)) < 4 * curve.stderr[0]


def test_student_participation_rises_to_one():
    curve = participation(al.Student(1, df=3.0), 1.0, [100, 100_000], 100)
    few, many = curve.value
    assert many > few + 4 * curve.stderr[1]
    assert many > 0.8


def test_the_ball_of_queries_that_have_a_limit():
    for scale, radius in ((0.2, 2.0), (0.6, 1.5)):
        check_ball(al.Head(scale * np.eye(2)), al.Laplace(2), radius)
    with pytest.raises(al.NoLimitError, match=r"reaches 1\.2"):
        check_ball(al.Head(0.6 * np.eye(2)), al.Laplace(2), 2.0)
