import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnlimit as al


def naive(head, queries, keys):
    scores = queries @ head.A.T @ keys.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ keys @ head.V.T / weights.sum(axis=1, keepdims=True)


def test_attention_matches_the_definition():
    rng = np.random.default_rng(0)
    head = al.Head(rng.standard_normal((3, 4)), rng.standard_normal((2, 3)))
    queries, keys = rng.standard_normal((5, 4)), rng.standard_normal((7, 3))
    np.testing.assert_allclose(head(queries, keys), naive(head, queries, keys), rtol=1e-12)


def test_batches_of_queries_keep_their_shape():
    head = al.Head(np.eye(2))
    keys = np.random.default_rng(0).standard_normal((6, 2))
    queries = np.random.default_rng(1).standard_normal((3, 4, 2))
    assert head(queries, keys).shape == (3, 4, 2)
    actual, among = head(queries[1, 2], keys), head(queries, keys)[1, 2]
    np.testing.assert_allclose(
        actual, among, rtol=1e-14
    )  # products of other shapes: other last bits


@given(st.floats(-1e50, 1e50))
def test_any_score_magnitude_gives_a_convex_combination(scale):
    keys = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    out = al.Head(scale * np.eye(2))(np.array([[0.3, -0.7]]), keys)
    assert np.isfinite(out).all()
    assert (out <= keys.max(axis=0) + 1e-12).all()
    assert (out >= keys.min(axis=0) - 1e-12).all()


def test_shifting_every_key_shifts_the_output():
    rng = np.random.default_rng(2)
    head = al.Head(rng.standard_normal((3, 3)))
    queries, keys, shift = rng.standard_normal((4, 3)), rng.standard_normal((9, 3)), np.ones(3)
    np.testing.assert_allclose(head(queries, keys + shift), head(queries, keys) + shift)


def test_from_projections_scales_by_the_head_dimension():
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal((4, 6)) for _ in range(3))
    head = al.Head.from_projections(query, key, value)
    np.testing.assert_allclose(head.A, key.T @ query / 2)
    np.testing.assert_allclose(al.Head.from_projections(query, key, value, scale=1).A, 2 * head.A)
    np.testing.assert_allclose(head.scaled(3).A, 3 * head.A)


@pytest.mark.parametrize(
    "build",
    [
        lambda: al.Head(np.ones(3)),
        lambda: al.Head(np.ones((0, 0))),
        lambda: al.Head([[np.nan]]),
        lambda: al.Head(np.eye(2), np.ones((2, 3))),
        lambda: al.Head.from_projections(np.ones((2, 3)), np.ones((4, 3)), np.eye(3)),
        lambda: al.Head(np.eye(2))(np.ones(3), np.ones((4, 2))),
        lambda: al.Head(np.eye(2))(np.ones(2), np.ones((4, 3))),
        lambda: al.Head(np.eye(2))(np.ones(2), np.ones((0, 2))),
        lambda: al.Head("not a matrix"),
        lambda: al.Head(np.eye(2)).scaled(np.inf),
    ],
)
def test_bad_input_is_one_clear_sentence(build):
    with pytest.raises(al.BadInput) as error:
        build()
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)
