import numpy as np
import pandas as pd
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask, estimate, make_bags, measure_plan, plan_bags, read_bags
from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.bags.digits import digit_bags


def drawn(task, n, dim, seed):
    X, y = task.sample(n, dim, seed)
    return make_bags(list(X), y)


def test_estimate_recovers_the_task():
    task = SparseTask(12, 1, 4.5, 0.4)
    found = estimate(drawn(task, 500, 30, seed=1))
    assert found.task.length == 12
    assert found.task.signals == 1
    assert found.task.strength == pytest.approx(4.5, rel=0.06)
    assert found.task.prior == pytest.approx(0.4, abs=0.06)
    assert found.signal_fraction == pytest.approx(1 / 12, rel=0.15)
    assert all(check.holds for check in found.checks), str(found)
    assert abs(found.direction @ (found.whitening.T @ task.direction(30))) > 0.9


def test_estimate_does_not_depend_on_the_coordinates():
    task = SparseTask(10, 2, 4.0)
    bags = drawn(task, 300, 10, seed=2)
    mix = np.random.default_rng(0).standard_normal((10, 10)) + 3 * np.eye(10)
    moved = bags.transformed(mix, np.full(10, 5.0))
    a, b = estimate(bags, max_dim=10), estimate(moved, max_dim=10)
    if a.dim == b.dim:
        assert a.task.strength == pytest.approx(b.task.strength, rel=0.02)


def test_broken_assumptions_are_named():
    task = SparseTask(10, 1, 5.0)
    X, y = task.sample(400, 20, seed=3)
    heavy = X + 2 * np.random.default_rng(0).standard_t(2.5, X.shape)
    kurtosis = estimate(make_bags(list(heavy), y)).checks[0]
    assert not kurtosis.holds
    shifted = X + np.random.default_rng(0).standard_normal((400, 1, 20))
    clustered = estimate(make_bags(list(shifted), y)).checks[2]
    assert not clustered.holds
    ragged = make_bags([bag[: 3 + i % 8] for i, bag in enumerate(X)], y)
    assert not next(c for c in estimate(ragged).checks if "length" in c.assumption).holds


def test_noise_alone_shows_no_signal():
    X = np.random.default_rng(0).standard_normal((400, 10, 20))
    y = np.where(np.arange(400) % 2, 1, -1)
    found = estimate(make_bags(list(X), y))
    agreement = next(c for c in found.checks if "halves" in c.assumption)
    assert not agreement.holds
    plan = plan_bags(make_bags(list(X), y), [100])
    assert plan.recommendation.startswith("No recommendation")


@pytest.mark.slow
def test_plan_is_what_training_gives():
    task = SparseTask(10, 1, 5.0)
    plan = plan_bags(drawn(task, 400, 40, seed=5), [200, 800])
    assert "attention" in plan.recommendation

    def draw(n, rng):
        X, y = task.sample(n, 40, rng)
        return Bags(tuple(X), y)

    frame = measure_plan(plan, draw, drawn(task, 3000, 40, seed=6), replicates=6, seed=1)
    for row in frame.itertuples():
        slack = 0.012 if row.pooling == "attention" else 0.025
        assert abs(row.measured - row.predicted) < 3 * row.stderr + slack
    assert len(plan.to_frame()) == 2
    assert "bags" in str(plan)


@pytest.mark.slow
def test_real_digits_end_to_end():
    source = digit_bags(digit=6)
    rng = np.random.default_rng(0)
    plan = plan_bags(source.draw(400, rng), [800])
    frame = measure_plan(plan, source.draw, source.draw_tests(1000, rng), replicates=3)
    errors = frame.set_index("pooling")["measured"]
    # attention wins by far, as predicted, though both predictions are optimistic on images
    assert errors["attention"] < 0.5 * errors["mean pooling"]
    assert errors["mean pooling"] == pytest.approx(plan.mean_error[0], rel=0.35)
    assert any(not check.holds for check in plan.estimate.checks)


def as_table(bags):
    rows = [
        pd.DataFrame(bag, columns=[f"x{j}" for j in range(bag.shape[1])]).assign(bag=i, label=y)
        for i, (bag, y) in enumerate(zip(bags.instances, bags.labels, strict=True))
    ]
    return pd.concat(rows, ignore_index=True)


def test_csv_parquet_and_folders_hold_the_same_bags(tmp_path):
    bags = drawn(SparseTask(3, 1, 2.0), 12, 4, seed=0)
    table = as_table(bags)
    table.to_csv(tmp_path / "bags.csv", index=False)
    table.to_parquet(tmp_path / "bags.parquet")
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    flat.mkdir()
    for name in ("positive", "negative"):
        (nested / name).mkdir(parents=True)
    for i, (bag, y) in enumerate(zip(bags.instances, bags.labels, strict=True)):
        np.save(flat / f"{i}.npy", bag)
        np.save(nested / ("positive" if y > 0 else "negative") / f"{i}.npy", bag)
    pd.DataFrame({"bag": range(12), "label": bags.labels}).to_csv(flat / "labels.csv", index=False)
    for path in ("bags.csv", "bags.parquet", "flat", "nested"):
        found = read_bags(tmp_path / path)
        assert len(found) == 12
        total = sum(bag.sum() for bag in found.instances)
        assert total == pytest.approx(sum(bag.sum() for bag in bags.instances))
        assert sorted(found.labels) == sorted(bags.labels)


@pytest.mark.parametrize(
    ("bags", "labels", "word"),
    [
        ([], [], "no bags"),
        ([np.ones((2, 3))], [1, 0], "labels"),
        ([np.ones((2, 3)), np.ones((0, 3))], [1, 0], "empty"),
        ([np.ones((2, 3)), np.ones((2, 4))], [1, 0], "columns"),
        ([np.ones((2, 3)), np.ones((2, 3))], [1, 1], "both classes"),
        ([np.ones((2, 3)), np.ones((2, 3))], [1, 2], "label"),
        ([np.ones((2, 3)), np.full((2, 3), np.nan)], [1, 0], "NaN"),
        ([np.ones(3), np.ones((2, 3))], [1, 0], "axes"),
    ],
)
def test_bad_bags_are_refused_in_one_sentence(bags, labels, word):
    with pytest.raises(BadInput, match=word):
        make_bags(bags, labels)


def test_bad_files_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="no file"):
        read_bags(tmp_path / "missing.csv")
    (tmp_path / "bags.txt").write_text("a")
    with pytest.raises(BadInput, match="csv"):
        read_bags(tmp_path / "bags.txt")
    (tmp_path / "bags.csv").write_text("group,label,x\n1,0,2\n")
    with pytest.raises(BadInput, match="'bag'"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n1,0,2\n1,1,3\n")
    with pytest.raises(BadInput, match="more than one label"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n1,0,red\n2,1,3\n")
    with pytest.raises(BadInput, match="numeric"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="positive"):
        read_bags(tmp_path / "empty")
    (tmp_path / "bags.parquet").write_bytes(b"not parquet")
    with pytest.raises(BadInput, match="could not be read"):
        read_bags(tmp_path / "bags.parquet")


def test_a_pilot_that_is_too_small_is_refused():
    tiny = drawn(SparseTask(2, 1, 2.0), 10, 50, seed=0)
    with pytest.raises(BadInput, match="max-dim"):
        estimate(tiny)
