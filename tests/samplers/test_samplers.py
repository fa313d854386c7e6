import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
from attnlimit.montecarlo import sampled_errors

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal(50)


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 49), seed=st.integers(0, 99))
def test_sets_have_no_repeats_and_stay_inside(place, seed):
    rng = np.random.default_rng(seed)
    for sampler in (
        al.WithoutReplacement(),
        al.Window(8, random=5),
        al.SinksAndRecent(4, 6),
        al.TopK(7),
        al.Keep(al.TopK(3), sample=10),
        al.Keep(sample=10),
    ):
        keys, added = sampler.draw(SCORES, place, 12, rng)
        assert len(np.unique(keys)) == len(keys) == len(added)
        assert len(keys) == 0 or (keys.min() >= 0 and keys.max() < 50)


def test_what_each_keeps():
    rng = np.random.default_rng(1)
    assert set(al.TopK(2).draw(SCORES, 0, 2, rng)[0]) == set(np.argsort(SCORES)[-2:])
    assert set(al.SinksAndRecent(2, 3).draw(SCORES, 20, 5, rng)[0]) == {0, 1, 18, 19, 20}
    assert set(range(16, 24)) <= set(al.Window(8, random=2).draw(SCORES, 20, 10, rng)[0])
    assert len(al.Window(8, random=2).draw(SCORES, 20, 10, rng)[0]) == 10
    assert len(al.Iid().draw(SCORES, 0, 80, rng)[0]) == 80
    _, added = al.Keep(al.TopK(3), sample=10).draw(SCORES, 0, 13, rng)
    assert (added[:3] == 0).all()
    np.testing.assert_allclose(added[3:], np.log(47 / 10))


def test_all_keys_leave_no_error():
    sequence = RNG.standard_normal((20, 2))
    errors = sampled_errors(al.Head(np.eye(2)), sequence, [3, 7], al.WithoutReplacement(), 20, 3)
    np.testing.assert_allclose(errors, 0, atol=1e-12)


def test_replacement_matches_the_exact_law():
    sequence = RNG.standard_normal((20, 2))
    head = al.Head(np.eye(2))
    errors = sampled_errors(head, sequence, [5], al.Iid(), 10, 4000)
    squares = (errors[:, 0] ** 2).sum(axis=1)
    law = al.pointwise_error(head, al.Empirical(sequence), sequence[5:6], [10])
    assert abs(squares.mean() - law.mse[0, 0]) < 4 * squares.std() / np.sqrt(len(squares))


@pytest.mark.parametrize(
    "make",
    [
        lambda: al.TopK(0),
        lambda: al.Window(0),
        lambda: al.SinksAndRecent(0, 0),
        lambda: al.Keep(al.Iid()),
        lambda: al.Keep(al.TopK(2), sample=-1),
    ],
)
def test_empty_samplers_are_refused(make):
    with pytest.raises(al.BadInput):
        make()
