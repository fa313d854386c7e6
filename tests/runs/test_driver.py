import random
import signal
import subprocess
import sys
import time

import pytest

from attnlimit.experiments import load
from attnlimit.runs import InProcess, Interrupted, LocalProcesses, execute

CONFIG = {"seed": 3, "horizons": [0.5, 1.5], "n": [20, 60], "replicates": 40, "block": 4}
SCRIPT = """
import sys
from pathlib import Path
from attnlimit.experiments import load
from attnlimit.runs import InProcess, LocalProcesses, execute
config, root, workers = {config!r}, Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
execute(load("clt"), config, root, executor=LocalProcesses(workers) if workers else InProcess())
"""


def contents(folder):
    """Bytes of the results; notes on time differ from run to run."""
    names = sorted(folder.path.rglob("*.parquet"))
    return {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in names}


class Backwards:
    def run(self, folder, experiment, tasks):
        yield from InProcess().run(folder, experiment, tasks[::-1])


class StopsAfter:
    def __init__(self, count):
        self.count = count

    def run(self, folder, experiment, tasks):
        yield from InProcess().run(folder, experiment, tasks[: self.count])
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return contents(execute(load("clt"), CONFIG, tmp_path_factory.mktemp("whole")))


def test_order_does_not_matter(tmp_path, whole):
    assert contents(execute(load("clt"), CONFIG, tmp_path, executor=Backwards())) == whole


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_do_not_matter(tmp_path, whole, workers):
    folder = execute(load("clt"), CONFIG, tmp_path, executor=LocalProcesses(workers))
    assert contents(folder) == whole


def test_interruption_keeps_what_was_done_and_says_how_to_resume(tmp_path, whole):
    seen = []
    with pytest.raises(Interrupted, match=r"3 of 20 shards.*same command again"):
        execute(load("clt"), CONFIG, tmp_path, executor=StopsAfter(3))
    folder = execute(
        load("clt"), CONFIG, tmp_path, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[0] == (3, 20)
    assert seen[-1] == (20, 20)
    assert contents(folder) == whole


def test_a_damaged_shard_is_computed_again(tmp_path, whole):
    with pytest.raises(Interrupted):
        execute(load("clt"), CONFIG, tmp_path, executor=StopsAfter(5))
    shard = next(tmp_path.rglob("00002.parquet"))
    shard.write_bytes(b"noise")
    assert contents(execute(load("clt"), CONFIG, tmp_path)) == whole


def test_a_finished_run_is_not_computed_again(tmp_path):
    first = execute(load("clt"), CONFIG, tmp_path)
    stamp = (first.path / "curves.parquet").stat().st_mtime_ns
    again = execute(load("clt"), CONFIG, tmp_path, executor=StopsAfter(0))
    assert (again.path / "curves.parquet").stat().st_mtime_ns == stamp


def test_a_damaged_result_is_combined_again(tmp_path, whole):
    folder = execute(load("clt"), CONFIG, tmp_path)
    (folder.path / "curves.parquet").write_bytes(b"noise")
    assert contents(execute(load("clt"), CONFIG, tmp_path)) == whole


def test_another_seed_is_another_run(tmp_path):
    first = execute(load("clt"), CONFIG, tmp_path)
    second = execute(load("clt"), CONFIG | {"seed": 4}, tmp_path)
    assert first.path != second.path
    assert not first.curves().equals(second.curves())


@pytest.mark.slow
def test_kill_at_random_moments_changes_no_bit(tmp_path):
    config = CONFIG | {"replicates": 400, "block": 8, "n": [50, 3000]}
    script = SCRIPT.format(config=config)
    expected = contents(execute(load("clt"), config, tmp_path / "whole"))
    moments = random.Random(0)
    killed = 0
    for attempt in range(20):
        workers = 2 if attempt % 10 == 0 else 0
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "cut"), str(workers)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout.readline() == b"ready\n"
        time.sleep(moments.uniform(0, 0.12) + (2.0 if workers else 0.0))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert killed >= 15
    folder = execute(load("clt"), config, tmp_path / "cut")
    assert contents(folder) == expected
