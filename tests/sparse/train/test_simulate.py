import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.reproduce.sparse.check import SETTINGS
from attnlimit.skewed import interval
from attnlimit.sparse import SparseTask, readout, simulate_capacity, simulate_readout
from attnlimit.sparse.train.descent import pool
from attnlimit.sparse.train.fit import LinearReadout
from attnlimit.sparse.train.simulate import exact_test_error, replicate, separable, unit_query


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_theory_is_right_on_every_setting(setting):
    """The full comparison, d = 1000 with the bias extrapolated, is `reproduce sparse-check`."""
    task, alpha, options = SparseTask(*setting["task"]), setting["alpha"], setting["options"]
    predicted = readout(task, alpha, **options)
    drawn = simulate_readout(
        task, alpha, dim=160, replicates=12, seed=SETTINGS.index(setting), **options
    )
    for name in ("test_error", "train_loss"):
        value = getattr(predicted, name)
        bias = 0.35 * value / np.sqrt(160)
        assert abs(drawn.mean[name] - value) < 3.5 * drawn.stderr[name] + bias


@pytest.mark.parametrize("model", ["attention", "pooled", "vectorized"])
def test_exact_test_error_is_the_error_on_drawn_bags(model):
    task = SparseTask(4, 2, 3.0, 0.4)
    rng = np.random.default_rng(3)
    dim = 12
    query = unit_query(task, dim, 0.6)
    assert query @ task.direction(dim) == pytest.approx(0.6)
    size = 4 * dim if model == "vectorized" else dim
    w = np.tile(task.direction(dim), size // dim) + 0.3 * rng.standard_normal(size)
    fitted = LinearReadout(w, -0.8, 0.0, 0.0, 1)
    exact = exact_test_error(task, fitted, model, query, 0.6, 1.5, rng)
    X, y = task.sample(60_000, dim, seed=9)
    drawn = np.mean(y * fitted(pool(X, model, query, 1.5)) <= 0)
    assert abs(drawn - exact) < 4 * np.sqrt(exact * (1 - exact) / 60_000) + 1e-3


def test_separability_by_linear_programming():
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert separable(x, np.array([-1.0, -1.0, 1.0, 1.0]))
    assert not separable(x, np.array([-1.0, 1.0, -1.0, 1.0]))


def test_replicates_do_not_depend_on_order_and_need_two():
    task = SparseTask(3, 1, 2.0)
    a = simulate_readout(task, 1.0, "pooled", dim=20, replicates=3, seed=1)
    b = simulate_readout(task, 1.0, "pooled", dim=20, replicates=3, seed=1)
    assert a.mean == b.mean
    assert "test_error" in str(a)
    assert len(a.to_frame()) == 3
    with pytest.raises(BadInput, match="replicates"):
        simulate_readout(task, 1.0, "pooled", dim=20, replicates=1)


def test_one_class_by_chance_is_separable():
    found = simulate_capacity(SparseTask(3, 1, 2.0, 0.02), 0.3, dim=10, replicates=3)
    assert found.mean["separable"] == 1.0


def test_intervals_of_cosines_hold_the_truth():
    """Eight cosines near their bound, 200 seeds: plain means of them are too skewed for that."""
    level, seeds, dim = 0.95, 200, 20

    def draw(rng):
        query = 6 * np.eye(dim)[0] + rng.standard_normal(dim)
        return {"cosine": float(query[0] / np.linalg.norm(query))}

    found = [replicate(draw, dim, 1, 8, seed) for seed in range(seeds)]
    names = ("mean", "stderr", "skewness")
    value, stderr, skew = (np.array([getattr(f, k)["cosine"] for f in found]) for k in names)
    low, high = interval(value, stderr, skew, 7)
    truth = np.tanh(np.arctanh(value).mean())
    share = ((low <= truth) & (truth <= high)).mean()
    assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / seeds)
    assert (skew < 0).all()
    assert (high < 1).all()
