"""Does the simulated cluster obey what any cluster must?"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.cost import Cluster, simulate
from attnlimit.cost.cluster import scaling, shard_seconds
from attnlimit.errors import BadInput
from attnlimit.runs.attempts import TRIES

shards = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)


@given(shards, st.floats(0, 5), st.floats(0, 50))
def test_one_worker_takes_the_sum(seconds, driver, start):
    found = simulate(seconds, Cluster(1, driver, start))
    assert found.seconds == pytest.approx(start + sum(seconds) + driver * len(seconds))
    assert found.work == pytest.approx(sum(seconds))


@given(shards, st.floats(0, 5), st.floats(0, 50))
def test_a_worker_for_each_shard_takes_the_longest_and_the_driver(seconds, driver, start):
    found = simulate(seconds, Cluster(len(seconds), driver, start))
    assert found.seconds <= start + max(seconds) + driver * len(seconds) + 1e-9
    assert (
        found.seconds
        >= start + max(max(seconds) + driver, min(seconds) + driver * len(seconds)) - 1e-9
    )
    if driver == 0:
        assert found.seconds == pytest.approx(start + max(seconds))


@given(shards, st.integers(1, 20), st.floats(0, 5))
def test_time_is_bounded_by_the_work_the_driver_and_the_longest_shard(seconds, workers, driver):
    found = simulate(seconds, Cluster(workers, driver))
    total = sum(seconds) + driver * len(seconds)
    assert found.seconds >= max(total / workers, driver * len(seconds), max(seconds)) - 1e-9
    assert found.seconds <= sum(seconds) / workers + max(seconds) + driver * len(seconds) + 1e-9
    assert 0 < found.efficiency <= 1 + 1e-9


@given(shards, st.integers(1, 20))
def test_another_worker_never_slows_a_run_down(seconds, workers):
    fewer, more = (simulate(seconds, Cluster(count)).seconds for count in (workers, workers + 1))
    assert more <= fewer + 1e-9


def test_a_slow_driver_is_the_bottleneck_past_its_speed():
    seconds = np.full(5000, 1.0)
    few, many = (simulate(seconds, Cluster(count, driver=0.01)) for count in (10, 1000))
    assert few.efficiency > 0.95
    assert many.seconds == pytest.approx(5000 * 0.01, rel=0.05)
    assert many.driver_busy > 0.95


def test_deaths_cost_the_shard_in_flight_and_a_start():
    seconds = np.full(2000, 20.0)
    quiet = simulate(seconds, Cluster(8, start=5))
    hurt = simulate(seconds, Cluster(8, start=5, deaths=2), seed=3)
    expected = 2 / 3600 * seconds.sum()
    assert hurt.deaths == pytest.approx(expected, abs=5 * np.sqrt(expected))
    assert hurt.lost == pytest.approx(10 * hurt.deaths, rel=0.3)  # half a shard each
    assert hurt.work == pytest.approx(quiet.work)
    assert hurt.set_aside == 0
    extra = (hurt.seconds - quiet.seconds) * 8
    assert extra == pytest.approx(hurt.lost + 5 * hurt.deaths, rel=0.3)


def test_a_shard_longer_than_any_life_is_set_aside_after_three_tries():
    found = simulate([3600.0], Cluster(1, deaths=100), seed=0)
    assert (found.set_aside, found.deaths, found.work) == (1, TRIES, 0)


def test_a_seed_fixes_everything():
    cluster = Cluster(5, 0.01, 1.0, deaths=30)
    seconds = np.random.default_rng(0).exponential(20, 300)
    assert simulate(seconds, cluster, 7) == simulate(seconds, cluster, 7)
    assert simulate(seconds, cluster, 7) != simulate(seconds, cluster, 8)


def test_scaling_has_a_row_for_each_number_of_workers():
    frame = scaling([1.0, 2.0], 500, [1, 4, 16], driver=0.001, start=1.0, deaths=1.0)
    assert frame.workers.tolist() == [1, 4, 16]
    assert (np.diff(frame.hours) < 0).all()
    assert (frame["hours with deaths"] > 0).all()


def test_a_cluster_of_nonsense_is_refused():
    for given_ in ({"workers": 0}, {"workers": 1, "driver": -1}, {"workers": 1, "deaths": np.nan}):
        with pytest.raises(BadInput):
            Cluster(**given_)
    for seconds in ([], [-1.0], [np.nan]):
        with pytest.raises(BadInput):
            simulate(seconds, Cluster(1))


def test_seconds_are_read_from_a_run_folder(tmp_path):
    folder = tmp_path / "run"
    (folder / "shards").mkdir(parents=True)
    with pytest.raises(BadInput, match="not a run folder"):
        shard_seconds(folder)
    (folder / "run.json").write_text("{}")
    with pytest.raises(BadInput, match="no finished shards"):
        shard_seconds(folder)
    for index, seconds in enumerate((1.5, 2.5)):
        note = {"sha256": "", "seconds": seconds}
        (folder / "shards" / f"{index:05d}.json").write_text(json.dumps(note))
    assert shard_seconds(folder).tolist() == [1.5, 2.5]
