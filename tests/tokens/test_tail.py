"""What a measure's tail allows: bounded, sub-Gaussian, exponential, unknown, and their mixtures."""

import numpy as np
import pytest

import attnlimit as al
import outside

CUBE, LAPLACE, NORMAL = al.Cube(2), al.Laplace(2, 0.5), al.Gaussian(dim=2, variance=4.0)
WAITING, SILENT = outside.Waiting(2), outside.Waiting(2, declared=False)
KINDS = [
    (CUBE, "bounded"),
    (NORMAL, "sub-Gaussian"),
    (LAPLACE, "exponential"),
    (SILENT, "unknown"),
    (outside.MEASURES["needle"], "bounded"),
    (al.Mixture([0.5, 0.5], [CUBE, al.Sphere(2)]), "bounded"),
    (al.Mixture([0.5, 0.5], [CUBE, NORMAL]), "sub-Gaussian"),
    (al.Mixture([0.2, 0.3, 0.5], [CUBE, LAPLACE, NORMAL]), "exponential"),
    (al.Mixture([0.5, 0.5], [SILENT, LAPLACE]), "unknown"),
    (al.Mixture([0.5, 0.5], [CUBE, al.Mixture([0.5, 0.5], [WAITING, CUBE])]), "exponential"),
]


@pytest.mark.parametrize(("tokens", "kind"), KINDS)
def test_a_mixture_is_as_heavy_as_its_heaviest_component(tokens, kind):
    assert tokens.tail.kind == kind


def test_what_a_tail_carries():
    mixture = al.Mixture([0.2, 0.3, 0.5], [CUBE, LAPLACE, NORMAL])
    assert mixture.tail.rate == 2.0
    np.testing.assert_allclose(mixture.tail.roots, [2 * np.eye(2)])


STUDENT = al.Student(2, df=5.0)
HEAVY = [
    (al.Mixture([0.3, 0.7], [al.Laplace(dim=2), al.Cube(dim=2)]), al.NoLimitError, "A share of"),
    (al.Laplace(2), al.NoLimitError, "A share of"),
    (WAITING, al.NoLimitError, "A share of"),
    (STUDENT, al.NoLimitError, "no exponential moment"),
    (al.Mixture([0.5, 0.5], [STUDENT, CUBE]), al.NoLimitError, "no exponential moment"),
    (al.from_sampler(lambda n, rng: rng.random((n, 2)), 2), al.BadInput, "override its `tail`"),
    (SILENT, al.BadInput, "override its `tail`"),
    (al.Mixture([0.5, 0.5], [SILENT, CUBE]), al.BadInput, "override its `tail`"),
]
ASKED = {
    "rate": lambda head, tokens: al.rate(head, tokens, "mean"),
    "predict the mean": lambda head, tokens: al.predict(head, tokens, "mean", [10, 10**9]),
    "predict the covariance": lambda head, tokens: al.predict(head, tokens, "covariance", [10]),
    "predict pointwise": lambda head, tokens: al.predict(head, tokens, "pointwise", [10]),
    "predict by delta": lambda head, tokens: al.predict(head, tokens, "mean", [9], method="delta"),
    "measure the mean": lambda head, tokens: al.measure(head, tokens, "mean", [4], 2),
    "measure pointwise": lambda head, tokens: al.measure(head, tokens, "pointwise", [4], 2),
    "mean covariance": al.mean_covariance,
    "mean influence": lambda head, tokens: al.mean_influence(head, tokens, [[0.0, 0.0]]),
}


@pytest.mark.parametrize("queried", ASKED)
@pytest.mark.parametrize(("tokens", "error", "reason"), HEAVY)
def test_heavy_and_unknown_tails_are_refused_everywhere(tokens, error, reason, queried):
    """Even where scores are so small that no draw or node meets the end of the CGF."""
    with pytest.raises(error, match=reason):
        ASKED[queried](al.Head(1e-3 * np.eye(2)), tokens)


@pytest.mark.parametrize(("tokens", "error", "reason"), HEAVY)
def test_on_a_ball(tokens, error, reason):
    head = al.Head(np.eye(2))
    with pytest.raises(error):
        al.uniform_bound(head, tokens, 3.0, [10])
    with pytest.raises(error):
        al.measure(head, tokens, "uniform", [4], 2, radius=3.0)
    small = al.NoLimitError if tokens.tail.rate == 0 else al.BadInput
    with pytest.raises(small):  # the limit may exist, a bound does not
        al.uniform_bound(head, tokens, 0.1, [10])


def test_what_the_refusal_recommends_works():
    head = al.Head(0.1 * np.eye(2))
    x = np.array([[1.0, -0.5]])
    for tokens in (WAITING, SILENT):
        error = al.pointwise_error(head, tokens, x, [100], method="delta")
        measured = al.measure(head, tokens, "pointwise", [100], 400, x=x)
        assert abs(error.mse[0, 0] / measured.value[0] - 1) < 0.05 + 4 * (
            measured.stderr[0] / measured.value[0]
        )
    assert al.pointwise_error(head, al.Laplace(2), x, [100]).mse[0, 0] > 0


def test_a_head_without_scores_averages_whatever_the_tail():
    flat = al.Head(np.zeros((2, 2)))
    assert al.rate(flat, al.Laplace(2), "mean").beta == 0.5
    predicted = al.predict(flat, al.Laplace(2), "mean", [50], method="delta")
    np.testing.assert_allclose(predicted.value, 4 / 50, rtol=0.05)
