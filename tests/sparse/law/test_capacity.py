import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlimit.sparse import SparseTask, capacity, simulate_capacity


@pytest.mark.parametrize(
    ("task", "cosine", "expected"),
    [(SparseTask(6, 1, 2.0), 0.7, 2.441), (SparseTask(10, 1, 5.0), 0.8, 17.34)],
)
def test_reference_values(task, cosine, expected):
    assert capacity(task, cosine=cosine, sharpness=1.0).value == pytest.approx(expected, rel=0.01)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    length=st.integers(2, 30),
    prior=st.floats(0.05, 0.95),
    cosine=st.floats(-1, 1),
    sharpness=st.floats(0, 10),
)
def test_without_signal_a_balanced_task_has_covers_capacity(length, prior, cosine, sharpness):
    balanced = capacity(
        SparseTask(length, 1, 0.0, 0.5), cosine=cosine, sharpness=sharpness, log2_points=10
    )
    assert balanced.value == pytest.approx(2.0, abs=0.03)
    skewed = capacity(SparseTask(length, 1, 0.0, prior), "pooled").value
    assert skewed >= 2.0 - 1e-9


def test_pooled_and_vectorized_differ_by_the_length():
    task = SparseTask(7, 2, 3.0, 0.3)
    each = capacity(task, "vectorized").value / capacity(task, "pooled").value
    assert each == pytest.approx(7, rel=1e-9)


def test_capacity_grows_with_strength_and_refines_to_one_percent():
    stars = [capacity(SparseTask(8, 1, s), cosine=0.9, sharpness=2.0).value for s in (0, 2, 4, 6)]
    assert stars == sorted(stars)
    fine = capacity(SparseTask(8, 1, 6.0), cosine=0.9, sharpness=2.0, log2_points=16).value
    assert stars[-1] == pytest.approx(fine, rel=0.01)


def test_flat_attention_has_the_pooled_capacity():
    task = SparseTask(5, 1, 3.0, 0.4)
    flat = capacity(task, cosine=0.3, sharpness=0.0).value
    assert flat == pytest.approx(capacity(task, "pooled").value, rel=0.003)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "dim"),
    [({"cosine": 0.7, "sharpness": 1.0}, 60), ({"model": "pooled"}, 60)],
)
def test_linear_programs_agree(options, dim):
    task = SparseTask(6, 1, 2.0, 0.4)
    star = capacity(task, **options).value
    low = simulate_capacity(task, 0.8 * star, dim=dim, replicates=20, seed=1, **options)
    high = simulate_capacity(task, 1.25 * star, dim=dim, replicates=20, seed=2, **options)
    assert low.mean["separable"] > 0.75
    assert high.mean["separable"] < 0.25


def test_it_says_its_setting():
    star = capacity(SparseTask(), cosine=0.8)
    assert star.to_frame().loc[0, "alpha_star"] == star.value
    assert star.to_frame().loc[0, "strength"] == 5.0
    assert "cosine 0.8" in str(star)
    assert "cosine" not in str(capacity(SparseTask(), "pooled"))
