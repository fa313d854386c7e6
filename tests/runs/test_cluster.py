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
from attnlimit.cli.reproduce import dask_executor
from attnlimit.errors import BadInput
from attnlimit.reproduce import execute, load
from attnlimit.runs import ExecutorLost, RunFolder, ShardsFailed
from run_checks import SMALL, contents

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

WORKERS = 2
SHARDS = 24
SEEDS = 6
# A driver is a process of its own, forked from one that has imported everything.
DRIVERS = """
import json, os, sys, traceback
from pathlib import Path
import distributed, faulty, scipy.linalg
from attnlimit.errors import AttnlimitError
from attnlimit.cli.reproduce import dask_executor
from attnlimit.reproduce import execute
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        try:
            with dask_executor(asked["address"]) as executor:
                execute(faulty.EXPERIMENT, asked["config"], Path(asked["root"]), executor=executor)
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

    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.nanny.environ": {"PYTHONPATH": _tests()},
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
    }
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
    tests = Path(__file__).parents[1]
    return os.pathsep.join([str(tests), str(tests.parent / "src")])


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
        task = {"config": config, "root": str(root), "address": cluster.scheduler_address}
        print(json.dumps(task), file=drivers.stdin, flush=True)
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
    with dask_executor(cluster.scheduler_address) as executor:
        folder = execute(load("clt"), SMALL, tmp_path / "there", executor=executor)
    assert contents(folder) == contents(execute(load("clt"), SMALL, tmp_path / "here"))


def test_a_shard_that_kills_every_worker_fails_alone(tmp_path, cluster):
    config = {"seed": 0, "shards": 6, "draws": 1, "shard": {"kills": [2]}}
    failed = pytest.raises(ShardsFailed, match=r"1 of 6 shards failed; shard 2: a worker was")
    with dask_executor(cluster.scheduler_address) as executor, failed:
        execute(faulty.EXPERIMENT, config, tmp_path, executor=executor)
    folder = next(tmp_path.glob("faulty-*"))
    assert len(list(folder.glob("shards/*.parquet"))) == 5


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
        lost = pytest.raises(ExecutorLost, match=r"executor is gone.*of 40.*to resume")
        with dask_executor(address) as executor, lost:
            execute(faulty.EXPERIMENT, config, tmp_path, executor=executor)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
    kept = len(list(tmp_path.rglob("shards/*.parquet")))
    assert 3 <= kept < 40
    folder = execute(faulty.EXPERIMENT, config, tmp_path)
    quiet = execute(faulty.EXPERIMENT, {"seed": 0, "shards": 40}, tmp_path / "quiet")
    assert contents(folder) == contents(quiet)


def test_ctrl_c_reaches_the_driver_and_not_the_workers(tmp_path):
    """A terminal sends it to every process of the group; the shards under way are finished."""
    marks = tmp_path / "marks"
    marks.mkdir()
    config = {"shards": 40, "shard": {"marks": str(marks), "seconds": 0.2}}
    script = (
        "import faulty\nfrom pathlib import Path\nfrom attnlimit.errors import Interrupted\n"
        "from attnlimit.reproduce import execute\nfrom attnlimit.runs import ProcessPool\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        with ProcessPool(2) as executor:\n"
        "            config = faulty.EXPERIMENT.configured()\n"
        "            execute(faulty.EXPERIMENT, config, Path('runs'), executor=executor)\n"
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


@pytest.mark.parametrize(
    ("address", "message"),
    [("local", "--workers N starts"), ("tcp://127.0.0.1:1", "No Dask scheduler answers")],
)
def test_a_wrong_address_is_one_sentence(address, message, monkeypatch):
    monkeypatch.setattr("attnlimit.cli.reproduce.SECONDS_TO_CONNECT", 1)
    with pytest.raises(BadInput, match=message), dask_executor(address):
        pass
