"""How well does work spread? Two cores against one, and what a shard costs beside its work."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attnlimit.cli.empty_shards import EXPERIMENT as EMPTY
from attnlimit.reproduce import Config, Experiment, load
from attnlimit.runs import DaskCluster, Executor, InProcess, LocalProcesses, execute

Row = tuple[str, float, float, float, float]
WORKERS = 2
EMPTY_SECONDS = 60.0
FEW, MANY = 1_000, 100_000
# The Gaussian sweep of `attnlimit reproduce`, with the draws of three temperatures.
SWEEP = {"scales": [0.05, 4.0, 50.0], "n": [500, 1000, 2000, 4000, 8000], "replicates": 400}


def bench_scale() -> list[Row]:
    """Rows (what, measured, baseline, ratio, target)."""
    # First, while this process is small: a child's peak memory counts from its parent's.
    few, many = peak_megabytes(FEW), peak_megabytes(MANY)
    gaussian = load("gaussian")
    config = gaussian.config(False) | SWEEP
    alone = seconds(gaussian, config, InProcess())
    processes = seconds(gaussian, config, LocalProcesses(WORKERS))
    dask = seconds(gaussian, config, DaskCluster(workers=WORKERS))
    empty = seconds(EMPTY, EMPTY.config(False), DaskCluster(workers=WORKERS))
    sweep = "Gaussian sweep, start-up included"
    return [
        (f"{sweep}: {WORKERS} processes against one, s", processes, alone, alone / processes, 1.7),
        (f"{sweep}: Dask, {WORKERS} workers, against one, s", dask, alone, alone / dask, 1.6),
        (
            "10,000 empty shards through Dask, against 60 s",
            empty,
            EMPTY_SECONDS,
            EMPTY_SECONDS / empty,
            1.0,
        ),
        (
            f"peak memory of the driver, {MANY:,} shards against {FEW:,}, MB (+10 % at most)",
            many,
            few,
            few / many,
            1 / 1.1,
        ),
    ]


def seconds(experiment: Experiment, config: Config, executor: Executor) -> float:
    """Seconds of a whole run, from nothing to its result."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        execute(experiment, config, Path(folder), executor=executor)
        return time.perf_counter() - started


def peak_megabytes(shards: int) -> float:
    """Peak memory of a fresh process that runs so many empty shards."""
    code = f"from attnlimit.cli.bench_scale import run_empty; run_empty({shards})"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return float(found)


def run_empty(shards: int) -> None:
    """Run empty shards in this process; print its peak memory in megabytes."""
    seconds(EMPTY, {"seed": 0, "shards": shards}, InProcess())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
