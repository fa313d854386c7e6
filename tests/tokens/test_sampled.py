"""Student tokens have no limit; tokens given by a function have what their draws support."""

import numpy as np
import pytest

import attnlimit as al

HEAD = al.Head(0.5 * np.eye(2))
CORNERS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])


def corners(n, rng):
    return CORNERS[rng.integers(3, size=n)]


def test_student_moments_and_draws():
    tokens = al.Student(3, df=7, scale=2.0)
    drawn = tokens.sample(200_000, 1)
    np.testing.assert_allclose(tokens.cov(), 4 * 7 / 5 * np.eye(3))
    np.testing.assert_allclose(np.cov(drawn.T), tokens.cov(), atol=0.15)
    np.testing.assert_array_equal(tokens.mean(), 0.0)
    quasi = tokens.points(1 << 14)
    for q in (0.9, 0.99):
        both = np.quantile(drawn, q, axis=0), np.quantile(quasi, q, axis=0)
        np.testing.assert_allclose(*both, rtol=0.05)


def test_student_tokens_have_no_limit_and_no_horizon():
    tokens = al.Student(2, df=5)
    for ask in (
        lambda: al.limit(HEAD, tokens)([1.0, 0.0]),
        lambda: al.horizon(HEAD, tokens),
        lambda: al.rate(HEAD, tokens, "pointwise"),
        lambda: al.pointwise_error(HEAD, tokens, [1.0, 0.0], [10]),
        lambda: al.uniform_bound(HEAD, tokens, 1.0, [10]),
    ):
        with pytest.raises(al.NoLimitError):
            ask()
    np.testing.assert_array_equal(al.limit(HEAD, tokens)([0.0, 0.0]), 0.0)


def test_student_without_moments_says_which_is_missing():
    with pytest.raises(al.NoLimitError, match="covariance"):
        al.Student(2, df=2).cov()
    with pytest.raises(al.NoLimitError, match="no mean"):
        al.Student(2, df=1).mean()
    assert al.Student(2, df=0.5).sample(10, 0).shape == (10, 2)


def test_one_draw_keeps_the_weight_of_student_tokens():
    """E sum p^2 does not fall to zero: the largest score outgrows all others together."""
    rng = np.random.default_rng(2)
    tokens, shares = al.Student(1, df=1.0), []
    for n in (100, 10_000):
        scores = np.stack([tokens.sample(n, rng)[:, 0] for _ in range(200)])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        shares.append((weights**2).sum(axis=1).mean())
    assert min(shares) > 0.9


def test_a_function_has_the_laws_of_its_distribution():
    known = al.Empirical(CORNERS)
    tokens = al.from_sampler(corners, 2, bounded=True)
    x = np.array([[0.5, -1.0], [2.0, 0.3]])
    np.testing.assert_allclose(tokens.cgf(x), known.cgf(x), atol=0.02)
    np.testing.assert_allclose(tokens.cov(), known.cov(), atol=0.02)
    np.testing.assert_allclose(al.limit(HEAD, tokens)(x), al.limit(HEAD, known)(x), atol=0.02)
    assert al.rate(HEAD, tokens, "mean").beta == 0.5
    measured = al.measure(HEAD, tokens, "pointwise", [20], 300, seed=1)
    exact = al.predict(HEAD, known, "pointwise", [20])
    assert abs(measured.value[0] - exact.value[0]) < 4 * measured.stderr[0] + 0.02 * exact.value[0]
    assert np.shape(tokens.tilted_cov(np.zeros((2, 3, 2)))) == (2, 3, 2, 2)


def test_a_query_that_the_draws_do_not_reach_is_refused():
    tokens = al.from_sampler(lambda n, rng: rng.standard_normal((n, 2)), 2, reference=4096)
    fine = al.limit(al.Head(np.eye(2)), tokens)([1.0, 0.0])
    np.testing.assert_allclose(fine, [1.0, 0.0], atol=0.1)
    with pytest.raises(al.BadInput, match="larger reference"):
        al.limit(al.Head(np.eye(2)), tokens)([6.0, 0.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: al.from_sampler("normal", 2),
        lambda: al.from_sampler(lambda n, rng: rng.random((n, 3)), 2),
        lambda: al.from_sampler(lambda n, rng: np.full((n, 2), np.nan), 2),
        lambda: al.from_sampler(lambda n, rng: None, 2),
        lambda: al.from_sampler(corners, 0),
        lambda: al.from_sampler(corners, 2, reference=1),
        lambda: al.Student(2, df=0),
        lambda: al.Student(2, df=-1),
        lambda: al.Student(2, df="3"),
        lambda: al.Student(2, df=3, scale=0),
        lambda: al.Student(0, df=3),
    ],
)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(al.BadInput):
        make()
