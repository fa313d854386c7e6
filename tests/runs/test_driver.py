import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import faulty
from attnlimit.errors import AttnlimitError, BadInput, NotConverged
from attnlimit.reproduce import load, run
from attnlimit.runs import (
    CannotStore,
    FolderBusy,
    InProcess,
    Interrupted,
    LocalProcesses,
    RunFolder,
    ShardsSetAside,
    execute,
)
from run_checks import SMALL, contents, messages_of

SCRIPT = """
import sys
from pathlib import Path
from attnlimit.reproduce import load
from attnlimit.runs import InProcess, LocalProcesses, execute
config, root, workers = {config!r}, Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
execute(load("clt"), config, root, executor=LocalProcesses(workers) if workers else InProcess())
"""


class Backwards(InProcess):
    slots = 7

    def wait(self):
        self._waiting.reverse()
        return super().wait()


class StopsAfter(InProcess):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def wait(self):
        if not self.count:
            raise KeyboardInterrupt
        self.count -= 1
        return super().wait()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return contents(execute(load("clt"), SMALL, tmp_path_factory.mktemp("whole")))


def faulty_run(root, executor=None, progress=None, **config):
    config = {"seed": 0, "shards": 6} | config
    return execute(faulty.EXPERIMENT, config, root, executor=executor, progress=progress)


def test_order_does_not_matter(tmp_path, whole):
    assert contents(execute(load("clt"), SMALL, tmp_path, executor=Backwards())) == whole


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_do_not_matter(tmp_path, whole, workers):
    folder = execute(load("clt"), SMALL, tmp_path, executor=LocalProcesses(workers))
    assert contents(folder) == whole


def test_interruption_keeps_what_was_done_and_says_how_to_resume(tmp_path, whole):
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
    said = messages_of(execute, load("clt"), SMALL, tmp_path)
    assert said == ["shard 2: its file is damaged; computing it again."]
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


def test_a_poisoned_shard_is_set_aside_after_three_tries(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    shard = {"marks": str(marks), "raises": [2]}
    with pytest.raises(ShardsSetAside, match=r"1 of 6 shards .* 2; .*ZeroDivisionError.*"):
        faulty_run(tmp_path, shard=shard)
    folder = next(tmp_path.glob("faulty-*"))
    assert sorted(path.name.split(".")[0] for path in marks.iterdir()) == list("01222345")
    (failure,) = json.loads((folder / "failures.json").read_text())
    assert (failure["shard"], failure["tries"], failure["kind"]) == (2, 3, "error")
    assert "nothing to divide by" in failure["trace"]
    assert not RunFolder(folder).finished
    assert len(contents(RunFolder(folder))) == 6  # five shards and what they say together


def test_what_the_same_seed_refuses_again_is_not_tried_again(tmp_path, monkeypatch):
    tries = []

    def refuse(shard, seed):
        tries.append(shard)
        raise NotConverged("it stopped short.", reached=0.1)

    monkeypatch.setattr(faulty.EXPERIMENT, "compute", refuse)
    with pytest.raises(ShardsSetAside, match=r"NotConverged: it stopped short\. All .*failures"):
        execute(faulty.EXPERIMENT, {"seed": 0, "shards": 1, "draws": 8}, tmp_path)
    assert len(tries) == 1
    with pytest.raises(ShardsSetAside, match=r"NotConverged: it stopped short\.$"):
        run(faulty.EXPERIMENT, {"shards": 1})  # no folder is kept, and none is named


def test_a_shard_that_was_set_aside_is_tried_by_the_next_run(tmp_path, monkeypatch):
    with pytest.raises(ShardsSetAside):
        faulty_run(tmp_path, shard={"raises": [2]})
    monkeypatch.setattr(faulty.EXPERIMENT, "compute", _draws_only)
    folder = faulty_run(tmp_path, shard={"raises": [2]})
    assert folder.finished
    assert not (folder.path / "failures.json").exists()
    assert not (folder.path / "partial-curves.parquet").exists()
    assert folder.table().equals(faulty_run(tmp_path / "quiet").table())


def _draws_only(shard, seed):
    return faulty.compute({"number": shard["number"], "draws": shard["draws"]}, seed)


def test_bad_input_stops_at_once_with_its_own_sentence(tmp_path, monkeypatch):
    tried = []

    def refuse(shard, seed):
        tried.append(shard)
        raise BadInput("The text has one token.")

    monkeypatch.setattr(faulty.EXPERIMENT, "compute", refuse)
    with pytest.raises(BadInput, match=r"^The text has one token\.$"):
        faulty_run(tmp_path)
    assert len(tried) == 1


def test_too_little_memory_splits_the_shard_and_changes_no_bit(tmp_path, monkeypatch):
    quiet = contents(faulty_run(tmp_path / "quiet", draws=7))
    sizes = []

    def starved(shard, seed):
        sizes.append(shard["draws"])
        if shard["draws"] > 2:
            raise MemoryError
        return faulty.compute(shard, seed)

    monkeypatch.setattr(faulty.EXPERIMENT, "compute", starved)
    said = messages_of(faulty_run, tmp_path / "starved", draws=7)
    folder = next((tmp_path / "starved").glob("faulty-*"))
    assert contents(RunFolder(folder)) == quiet
    assert sizes[0] == 7
    assert set(sizes) <= {7, 3, 4, 2, 1}
    assert "shard 0: MemoryError: MemoryError; trying it in smaller pieces." in said


def test_what_cannot_be_split_any_further_is_set_aside(tmp_path, monkeypatch):
    def starved(shard, seed):
        raise MemoryError

    monkeypatch.setattr(faulty.EXPERIMENT, "compute", starved)
    with pytest.raises(ShardsSetAside, match="2 of 2 shards"):
        faulty_run(tmp_path, shards=2, draws=3)


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


def test_memory_does_not_grow_with_the_number_of_shards(tmp_path):
    """A byte a shard, and whatever is under way: the shards themselves are never listed."""
    import tracemalloc

    class Instant(InProcess):
        def wait(self):
            task = self._waiting.pop(0)
            return answers(task)

    frame = faulty.compute({"number": 0, "draws": 1}, np.random.SeedSequence(0))
    from attnlimit.runs.task import Outcome
    from attnlimit.tables import to_parquet

    content = to_parquet(frame)

    def answers(task):
        return Outcome(task, content, 0.0)

    peaks = {}
    for shards in (1_000, 100_000):
        written = []
        run = pytest.MonkeyPatch()
        run.setattr(RunFolder, "write_shard", lambda *given, written=written: written.append(1))
        run.setattr("attnlimit.runs.driver.gathered_rows", lambda folder, shards: frame)
        tracemalloc.start()
        faulty_run(tmp_path, executor=Instant(), shards=shards)
        peaks[shards] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        run.undo()
        assert len(written) == shards
    assert peaks[100_000] < peaks[1_000] + 5e6


@pytest.mark.slow
def test_a_killed_process_is_replaced(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    shard = {"marks": str(marks), "kills_above": {"shards": [1], "draws": 2}}
    said = messages_of(faulty_run, tmp_path, LocalProcesses(2), shard=shard)
    folder = RunFolder(next(tmp_path.glob("faulty-*")))
    assert folder.table().equals(faulty_run(tmp_path / "quiet").table())
    assert said == [
        "shard 1: its process was ended by SIGKILL; trying again (2 of 3).",
        "shard 1: its process was ended by SIGKILL; trying it in smaller pieces.",
    ]
    assert sorted(path.name[:3] for path in marks.iterdir()).count("0.0") == 1


@pytest.mark.slow
def test_processes_that_cannot_start_are_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "broken.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.setattr("attnlimit.runs.processes.serve", _NotHere("broken"))
    with pytest.raises(AttnlimitError, match=r"end before they begin \(exit code 7\)"):
        faulty_run(tmp_path, LocalProcesses(1))


class _NotHere:
    """Pickled by importing a module that ends its process."""

    def __init__(self, module):
        self.module = module

    def __reduce__(self):
        return __import__, (self.module,)


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
def test_ctrl_c_once_finishes_the_shard_and_twice_stops(tmp_path, times):
    before = signal.getsignal(signal.SIGINT)
    marks = tmp_path / "marks"
    marks.mkdir()
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
