"""Tokens given by a function have what their draws support."""

import numpy as np
import pytest

import attnlimit as al

HEAD = al.Head(0.5 * np.eye(2))
CORNERS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])


def corners(n, rng):
    return CORNERS[rng.integers(3, size=n)]


def test_a_function_has_the_laws_of_its_distribution():
    known = al.Empirical(CORNERS)
    tokens = al.from_sampler(corners, bounded=True)
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
        lambda: al.from_sampler(lambda n, rng: rng.random(n)),
        lambda: al.from_sampler(corners, 2, reference=1),
    ],
)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(al.BadInput):
        make()
