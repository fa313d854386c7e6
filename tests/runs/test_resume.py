"""A resumable map: bit-identical after any interruption, kill, damage or failure."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pandas as pd
import pytest

import faulty
from attnlimit.errors import BadInput, Interrupted, NotConverged
from attnlimit.reproduce import execute, load, run
from attnlimit.runs import (
    CannotStore,
    ExecutorLost,
    FolderBusy,
    ProcessPool,
    RunFolder,
    ShardsFailed,
    resumable_map,
)
from attnlimit.runs.resume import compute
from run_checks import SMALL, contents, messages_of

SCRIPT = """
import sys
from contextlib import nullcontext
from pathlib import Path
from attnlimit.reproduce import execute, load
from attnlimit.runs import ProcessPool
config, root, workers = {config!r}, Path(sys.argv[1]), int(sys.argv[2])
if __name__ == "__main__":
    print("ready", flush=True)
    with ProcessPool(workers) if workers else nullcontext() as executor:
        execute(load("clt"), config, root, executor=executor)
"""


class Backwards(Executor):
    """Computes the calls that it holds in reverse order, seven at a time."""

    width = 4

    def __init__(self):
        self.waiting = []

    def submit(self, fn, /, *args, **kwargs):
        self.waiting.append((future := Future(), fn, args))
        if len(self.waiting) > 6 or args[1]["stream"] == 9:
            for waiting, function, given in reversed(self.waiting):
                waiting.set_result(function(*given))
            self.waiting.clear()
        return future


class StopsAfter(Executor):
    """Ends with Ctrl-C after some calls."""

    def __init__(self, count):
        self.count = count

    def submit(self, fn, /, *args, **kwargs):
        if not self.count:
            raise KeyboardInterrupt
        self.count -= 1
        future = Future()
        future.set_result(fn(*args))
        return future

    width = 0.5  # one call at a time


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return contents(execute(load("clt"), SMALL, tmp_path_factory.mktemp("whole")))


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def faulty_run(root, executor=None, progress=None, **config):
    config = {"seed": 0, "shards": 6} | config
    return execute(faulty.EXPERIMENT, config, root, executor=executor, progress=progress)


def square(item):
    return pd.DataFrame({"square": [item**2]})


def test_a_map_stores_its_results_and_reads_them_again(tmp_path, monkeypatch):
    first = resumable_map(square, [1, 2, 3], tmp_path / "squares")
    assert [frame["square"].item() for frame in first] == [1, 4, 9]
    monkeypatch.setattr("attnlimit.runs.resume.compute", None)
    again = resumable_map(square, [1, 2, 3], tmp_path / "squares")
    assert [frame["square"].item() for frame in again] == [1, 4, 9]
    with pytest.raises(BadInput, match="holds another run"):
        resumable_map(square, [1, 2], tmp_path / "squares")


@pytest.mark.parametrize("start", [Backwards, lambda: ThreadPoolExecutor(2)])
def test_order_does_not_matter(tmp_path, whole, start):
    with start() as executor:
        assert contents(execute(load("clt"), SMALL, tmp_path, executor=executor)) == whole


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_not_matter(tmp_path, whole, workers):
    with ProcessPool(workers) as executor:
        folder = execute(load("clt"), SMALL, tmp_path, executor=executor)
    assert contents(folder) == whole


def test_interruption_keeps_finished_shards_and_says_how_to_resume(tmp_path, whole):
    seen = []
    with pytest.raises(Interrupted, match=r"3 of 10 shards.*same command again"):
        execute(load("clt"), SMALL, tmp_path, executor=StopsAfter(3))
    folder = execute(
        load("clt"),
        SMALL,
        tmp_path,
        progress=lambda status: seen.append((status.done, status.total)),
    )
    assert seen[0] == (3, 10)
    assert seen[-1] == (10, 10)
    assert contents(folder) == whole


@pytest.mark.parametrize("damage", [b"noise", b""])
def test_a_damaged_shard_is_computed_again_and_reported(tmp_path, whole, damage):
    with pytest.raises(Interrupted):
        execute(load("clt"), SMALL, tmp_path, executor=StopsAfter(5))
    next(tmp_path.rglob("00002.parquet")).write_bytes(damage)
    messages = messages_of(execute, load("clt"), SMALL, tmp_path)
    assert messages == ["shard 2: its file is damaged; computing it again."]
    assert contents(RunFolder(next(tmp_path.glob("clt-*")))) == whole


def test_a_finished_run_is_not_computed_again(tmp_path):
    first = execute(load("clt"), SMALL, tmp_path)
    stamp = (first.path / "curves.parquet").stat().st_mtime_ns
    again = execute(load("clt"), SMALL, tmp_path, executor=StopsAfter(0))
    assert (again.path / "curves.parquet").stat().st_mtime_ns == stamp


def test_a_damaged_result_is_combined_again(tmp_path, whole):
    folder = execute(load("clt"), SMALL, tmp_path)
    (folder.path / "curves.parquet").write_bytes(b"noise")
    assert contents(execute(load("clt"), SMALL, tmp_path)) == whole


def test_another_seed_is_another_run(tmp_path):
    first = execute(load("clt"), SMALL, tmp_path)
    second = execute(load("clt"), SMALL | {"seed": 4}, tmp_path)
    assert first.path != second.path
    assert not first.table().equals(second.table())


def test_the_clock_may_jump(tmp_path, whole, monkeypatch):
    jumps = random.Random(0)
    monkeypatch.setattr(time, "time", lambda: jumps.uniform(-1e9, 4e9))
    assert contents(execute(load("clt"), SMALL, tmp_path)) == whole


def test_a_second_run_of_the_folder_is_refused(tmp_path):
    folder = RunFolder.prepare(tmp_path, "clt", SMALL)
    with folder.lock(), pytest.raises(FolderBusy, match="Another process is writing"):
        execute(load("clt"), SMALL, tmp_path)


def test_a_failing_shard_is_listed_and_the_others_are_stored(tmp_path, marks, monkeypatch):
    shard = {"marks": str(marks), "raises": [2]}
    with pytest.raises(ShardsFailed, match=r"1 of 6 shards failed; shard 2: ZeroDivisionError"):
        faulty_run(tmp_path, shard=shard)
    folder = RunFolder(next(tmp_path.glob("faulty-*")))
    assert sorted(path.name.split(".")[0] for path in marks.iterdir()) == list("012345")
    (failure,) = json.loads((folder.path / "failures.json").read_text())
    assert failure["shard"] == 2
    assert "nothing to divide by" in failure["trace"]
    assert not folder.finished
    assert len(contents(folder)) == 5
    monkeypatch.setattr(faulty.EXPERIMENT, "compute", _draws_only)
    assert faulty_run(tmp_path, shard=shard).finished
    assert not (folder.path / "failures.json").exists()
    assert folder.table().equals(faulty_run(tmp_path / "quiet").table())


def _draws_only(shard, seed):
    return faulty.compute({"number": shard["number"], "draws": shard["draws"]}, seed)


def test_without_a_folder_none_is_named(monkeypatch):
    def refuse(shard, seed):
        raise NotConverged("it stopped short.", reached=0.1)

    monkeypatch.setattr(faulty.EXPERIMENT, "compute", refuse)
    with pytest.raises(ShardsFailed, match=r"NotConverged: it stopped short\.$"):
        run(faulty.EXPERIMENT, {"shards": 1})


@pytest.mark.parametrize("start", [lambda: None, lambda: StopsAfter(9)])
def test_bad_input_stops_at_once_with_its_own_sentence(tmp_path, monkeypatch, start):
    calls = []

    def refuse(shard, seed):
        calls.append(shard)
        raise BadInput("The text has one token.")

    monkeypatch.setattr(faulty.EXPERIMENT, "compute", refuse)
    with pytest.raises(BadInput, match=r"^The text has one token\.$"):
        faulty_run(tmp_path, start())
    assert len(calls) == 1


def test_a_worker_with_other_versions_is_refused():
    with pytest.raises(BadInput, match=r"A worker has other versions .*: numpy "):
        compute(square, 1, versions_with(numpy="0.1"))


def versions_with(**changes):
    from attnlimit.runs.folder import versions

    return versions() | changes


def test_a_full_disk_stops_resumably(tmp_path, monkeypatch):
    from attnlimit import files

    written = []

    def fsync(descriptor):
        written.append(descriptor)
        if len(written) > 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fsync)
        with pytest.raises(CannotStore, match=r"No space left.*of 10 shards.*resume"):
            execute(load("clt"), SMALL, tmp_path)
    assert not list(tmp_path.rglob("*.partial"))
    assert execute(load("clt"), SMALL, tmp_path).finished


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="mounting needs root")
def test_a_really_full_disk(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(CannotStore, match="No space left on device"):
            faulty_run(small, shards=100)
        kept = len(list(small.rglob("*.json")))
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        folder = faulty_run(small, shards=100)
        assert kept > 3
        assert folder.table().equals(faulty_run(tmp_path / "quiet", shards=100).table())
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
def test_a_killed_pool_is_replaced_and_only_the_guilty_shard_fails(tmp_path, marks):
    shard = {"marks": str(marks), "kills": [2]}
    with ProcessPool(2) as executor:
        with pytest.raises(ShardsFailed, match=r"1 of 6 shards failed; shard 2: a worker was"):
            faulty_run(tmp_path, executor, shard=shard)
        again = faulty_run(tmp_path, executor)  # the executor still works
    folder = RunFolder(again.path)
    assert folder.table().equals(faulty_run(tmp_path / "quiet").table())
    assert sorted(path.name.split(".")[0] for path in marks.iterdir()).count("2") == 3


@pytest.mark.slow
def test_a_broken_executor_leaves_a_resumable_run(tmp_path):
    with (
        ProcessPoolExecutor(1) as executor,
        pytest.raises(ExecutorLost, match=r"executor is gone.*of 6 shards.*resume"),
    ):
        faulty_run(tmp_path, executor, shard={"kills": [2]})
    assert len(list(tmp_path.rglob("shards/*.parquet"))) == 2


def _interrupt_when(path, pattern, count, times, pause=0.3):
    """Send Ctrl-C to this process, `times` times, once `count` files match."""

    def watch():
        while len(list(path.rglob(pattern))) < count:
            time.sleep(0.01)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(pause)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_once_finishes_the_shard_and_twice_stops(tmp_path, marks, times):
    before = signal.getsignal(signal.SIGINT)
    shard = {"marks": str(marks), "seconds": 1.5 if times == 2 else 0.5}
    thread = _interrupt_when(marks, "1.*", 1, times)
    started = time.monotonic()
    with pytest.raises(Interrupted) as stopped:
        faulty_run(tmp_path, shard=shard)
    thread.join()
    done = 2 if times == 1 else 1
    assert f"Stopped with {done} of 6 shards" in str(stopped.value)
    assert len(list(marks.iterdir())) == 2
    assert time.monotonic() - started < 30
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_kill_at_random_moments_changes_no_bit(tmp_path):
    config = SMALL | {"replicates": 400, "block": 8, "n": [50, 3000]}
    script = SCRIPT.format(config=config)
    (tmp_path / "script.py").write_text(script)
    expected = contents(execute(load("clt"), config, tmp_path / "whole"))
    moments = random.Random(0)
    killed = 0
    for attempt in range(8):
        workers = 2 if attempt % 4 == 0 else 0
        process = subprocess.Popen(
            [sys.executable, tmp_path / "script.py", str(tmp_path / "cut"), str(workers)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout.readline() == b"ready\n"
        time.sleep(moments.uniform(0, 0.12) + (2.0 if workers else 0.0))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert killed >= 6
    folder = execute(load("clt"), config, tmp_path / "cut")
    assert contents(folder) == expected
