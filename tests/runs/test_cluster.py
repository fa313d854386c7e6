"""Faults that really happen: workers and drivers are killed, schedulers go, memory runs out."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import faulty
from attnlimit.errors import BadInput
from attnlimit.reproduce import load
from attnlimit.runs import (
    DaskCluster,
    ExecutorLost,
    InProcess,
    RunFolder,
    ShardsSetAside,
    Tls,
    execute,
)
from attnlimit.runs.cluster import SETTINGS
from attnlimit.runs.record import versions
from attnlimit.runs.task import Task, compute_bundle, unpack
from run_checks import SMALL, contents, messages_of

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

WORKERS = 2
SHARDS = 24
SEEDS = 30
# A driver is a process of its own, forked from one that has imported everything.
DRIVERS = """
import json, os, sys, traceback
from pathlib import Path
import distributed, faulty, scipy.linalg
from attnlimit.errors import AttnlimitError
from attnlimit.runs import DaskCluster, execute
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        try:
            execute(faulty.EXPERIMENT, asked["config"], Path(asked["root"]),
                    executor=DaskCluster(asked["address"]))
        except AttnlimitError as error:
            print(error, file=sys.stderr)
            os._exit(2)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def cluster():
    import dask

    settings = {**SETTINGS, "distributed.nanny.environ": {"PYTHONPATH": _tests()}}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def drivers():
    environment = os.environ | {"PYTHONPATH": _tests()}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        yield process
        process.stdin.close()


def _tests():
    return str(Path(__file__).parents[1])


def _kill_a_worker(cluster, chance):
    """Kill one of the workers that are up; their nannies start others."""
    up = set(cluster.scheduler.workers)
    nannies = [nanny for nanny in cluster.workers.values() if nanny.worker_address in up]
    running = [nanny.pid for nanny in nannies if nanny.pid is not None]  # None: just ended
    if not running:
        return False
    os.kill(chance.choice(running), signal.SIGKILL)
    return True


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_kills_change_no_bit_and_lose_nothing(tmp_path, cluster, drivers, seed):
    chance = random.Random(seed)
    marks = tmp_path / "marks"
    marks.mkdir()
    config = {"seed": seed, "shards": SHARDS, "shard": {"marks": str(marks), "seconds": 0.03}}
    root = tmp_path / "run"
    killed = {"worker": 0, "driver": 0}
    plan = [chance.choice(["worker", "worker", "driver"]) for _ in range(chance.randint(1, 3))]
    code = None
    while code != 0:
        asked = {"config": config, "root": str(root), "address": cluster.scheduler_address}
        print(json.dumps(asked), file=drivers.stdin, flush=True)
        driver = int(drivers.stdout.readline())
        while plan:
            time.sleep(chance.uniform(0.0, 0.5))
            victim = plan.pop()
            if victim == "worker":
                killed["worker"] += _kill_a_worker(cluster, chance)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(driver, signal.SIGKILL)
                break
        code = int(drivers.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        killed["driver"] += code != 0
    folder = RunFolder(next(root.glob("faulty-*")))
    quiet = execute(faulty.EXPERIMENT, {"seed": seed, "shards": SHARDS}, tmp_path / "quiet")
    assert contents(folder) == contents(quiet)
    computed = [int(path.name.split(".")[0]) for path in marks.iterdir()]
    assert set(computed) == set(range(SHARDS))
    # Under way when a worker dies: what it computes, and a result nobody has fetched. When a
    # driver dies: what it has handed out.
    under_way = 2 * killed["worker"] + 2 * WORKERS * killed["driver"]
    assert len(computed) - SHARDS <= under_way


def test_a_cluster_gives_the_same_numbers(tmp_path, cluster):
    folder = execute(
        load("clt"), SMALL, tmp_path / "there", executor=DaskCluster(cluster.scheduler_address)
    )
    assert contents(folder) == contents(execute(load("clt"), SMALL, tmp_path / "here"))


def test_a_shard_that_kills_every_worker_is_set_aside(tmp_path, cluster):
    config = {"seed": 0, "shards": 6, "draws": 1, "shard": {"kills": [2]}}
    with pytest.raises(ShardsSetAside, match=r"1 of 6 shards.*: 2;.*worker .* died"):
        execute(
            faulty.EXPERIMENT, config, tmp_path, executor=DaskCluster(cluster.scheduler_address)
        )
    folder = next(tmp_path.glob("faulty-*"))
    assert len(list(folder.glob("shards/*.parquet"))) == 5


def test_workers_without_enough_memory_get_smaller_pieces(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", _tests())
    config = {"seed": 0, "shards": 1, "draws": 8, "shard": {"megabytes": 150}}
    executor = DaskCluster(workers=1, memory="1200MB")
    said = messages_of(execute, faulty.EXPERIMENT, config, tmp_path, executor=executor)
    assert any("died; trying it in smaller pieces." in message for message in said)
    folder = RunFolder(next(tmp_path.glob("faulty-*")))
    quiet = execute(faulty.EXPERIMENT, {"seed": 0, "shards": 1, "draws": 8}, tmp_path / "quiet")
    assert contents(folder) == contents(quiet)


def test_a_scheduler_that_goes_away_leaves_a_resumable_run(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    file = tmp_path / "scheduler.json"
    environment = os.environ | {"PYTHONPATH": _tests(), "OMP_NUM_THREADS": "1"}
    dask = str(Path(sys.executable).with_name("dask"))
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    scheduler = subprocess.Popen(
        [dask, "scheduler", "--port", "0", "--host", "127.0.0.1", *common], **silent
    )
    worker = subprocess.Popen([dask, "worker", "--nthreads", "1", "--no-nanny", *common], **silent)
    try:
        while not file.exists():
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        config = {"seed": 0, "shards": 40, "shard": {"marks": str(marks), "seconds": 0.1}}

        def end_the_scheduler():
            while len(list(marks.iterdir())) < 5:
                time.sleep(0.05)
            scheduler.kill()

        threading.Thread(target=end_the_scheduler, daemon=True).start()
        with pytest.raises(ExecutorLost, match=r"scheduler at .* went away.*of 40.*to resume"):
            execute(faulty.EXPERIMENT, config, tmp_path, executor=DaskCluster(address))
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
    kept = len(list(tmp_path.rglob("shards/*.parquet")))
    assert 3 <= kept < 40
    folder = execute(faulty.EXPERIMENT, config, tmp_path, executor=InProcess())
    quiet = execute(faulty.EXPERIMENT, {"seed": 0, "shards": 40}, tmp_path / "quiet")
    assert contents(folder) == contents(quiet)


@pytest.mark.parametrize("executor", ["DaskCluster(workers=2)", "LocalProcesses(2)"])
def test_ctrl_c_reaches_the_driver_and_not_the_workers(tmp_path, executor):
    """A terminal sends it to every process of the group; the shards under way are finished."""
    marks = tmp_path / "marks"
    marks.mkdir()
    config = {"shards": 40, "shard": {"marks": str(marks), "seconds": 0.2}}
    script = (
        "import faulty\nfrom pathlib import Path\nfrom attnlimit.runs import *\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        execute(faulty.EXPERIMENT, faulty.EXPERIMENT.configured(), Path('runs'),"
        f" executor={executor})\n"
        "    except Interrupted as error:\n        print(error)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": _tests(), "FAULTY": json.dumps(config)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while len(list(marks.iterdir())) < 3 and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert "Traceback" not in err
    kept = len(list(tmp_path.rglob("shards/*.parquet")))
    assert f"Stopped with {kept} of 40 shards" in out
    assert len(list(marks.iterdir())) == kept


def test_workers_with_other_versions_are_refused():
    task = Task(0, "faulty:EXPERIMENT", json.dumps({"number": 0, "draws": 1}), 0, 0)
    same = tuple(versions().items())
    (content,) = compute_bundle([task.to_bytes()], same)
    assert unpack(task, content).fault is None
    other = tuple((versions() | {"numpy": "0.1"}).items())
    fault = unpack(task, compute_bundle([task.to_bytes()] * 2, other)[0]).fault
    assert fault.kind == "input"
    assert "numpy" in fault.message
    assert "instead of 0.1" in fault.message


def test_a_bundle_stops_in_time_and_the_rest_is_sent_again(tmp_path, cluster):
    slow = {"number": 0, "draws": 1, "seconds": 0.2}
    tasks = [Task(k, "faulty:EXPERIMENT", json.dumps(slow), 0, k).to_bytes() for k in range(3)]
    assert len(compute_bundle(tasks, tuple(versions().items()))) == 1
    marks = tmp_path / "marks"
    marks.mkdir()
    # Quick shards, which go in bundles, then one that kills its worker: only that one is blamed.
    config = {"seed": 0, "shards": 300, "draws": 1, "shard": {"marks": str(marks), "kills": [250]}}
    with pytest.raises(ShardsSetAside, match=r"1 of 300 shards.*: 250;"):
        execute(
            faulty.EXPERIMENT, config, tmp_path, executor=DaskCluster(cluster.scheduler_address)
        )
    assert len(list(tmp_path.rglob("shards/*.parquet"))) == 299


def test_wrong_addresses_and_certificates_are_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="neither 'local' nor an address"):
        DaskCluster("somewhere")
    with (
        pytest.raises(BadInput, match="There is no certificate file"),
        DaskCluster("tls://127.0.0.1:1", tls=Tls(ca_file=tmp_path / "none.pem")),
    ):
        pass
