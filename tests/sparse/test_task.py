import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask


def test_sample_has_the_moments_of_the_model():
    task = SparseTask(length=5, signals=2, strength=3.0, prior=0.3)
    X, y = task.sample(20_000, dim=4, seed=1)
    xi = task.direction(4)
    assert X.shape == (20_000, 5, 4)
    assert abs(np.mean(y > 0) - 0.3) < 4 * np.sqrt(0.21 / 20_000)
    scores = X @ xi
    assert abs(scores[y < 0].mean()) < 0.02
    # mean theta R / L, second moment 1 + theta^2 R / L
    assert scores[y > 0].mean() == pytest.approx(3 * 2 / 5, abs=0.04)
    assert (scores[y > 0] ** 2).mean() == pytest.approx(1 + 9 * 2 / 5, abs=0.1)


def test_same_seed_same_bags_and_batches_cover_all():
    task = SparseTask(length=50, signals=1, strength=2.0)
    a, b = task.sample(7, 3, seed=5), task.sample(7, 3, seed=5)
    assert (a[0] == b[0]).all()
    sizes = [len(y) for _, y in task.batches(3000, 100, seed=0)]
    assert sum(sizes) == 3000
    assert max(sizes) < 3000  # never all at once


def test_every_support_has_r_tokens_and_is_uniform():
    task = SparseTask(length=4, signals=2)
    v = task.supports(40_000, np.random.default_rng(0))
    assert (v.sum(axis=1) == 2).all()
    np.testing.assert_allclose(v.mean(axis=0), 0.5, atol=0.02)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"length": 3, "signals": 4}, "signals"),
        ({"prior": 0.0}, "prior"),
        ({"prior": 1.0}, "prior"),
        ({"strength": -1.0}, "strength"),
        ({"strength": float("nan")}, "strength"),
        ({"strength": 1e5}, "units of the noise"),
        ({"length": 0}, "length"),
        ({"length": 2.5}, "length"),
    ],
)
def test_bad_tasks_are_refused_in_one_sentence(options, word):
    with pytest.raises(BadInput, match=word):
        SparseTask(**options)
