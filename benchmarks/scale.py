"""How well does work spread? Two cores against one, and what a shard costs beside its work."""

from __future__ import annotations

import tempfile
from pathlib import Path

from attnlimit.reproduce import load
from attnlimit.runs import DaskCluster, Executor, InProcess, LocalProcesses, execute
from attnlimit.runs.experiment import Config, Runnable
from benchmarks.empty_shards import EXPERIMENT as EMPTY
from benchmarks.row import Row, fresh, peak_megabytes, wall_seconds
from benchmarks.stored import WORKERS, stored_rows

EMPTY_SECONDS = 60.0
FEW, MANY = 1_000, 20_000
# The Gaussian sweep of `attnlimit reproduce`, with the draws of three temperatures.
SWEEP = {"scales": [0.05, 4.0, 50.0], "n": [500, 1000, 2000, 4000, 8000], "replicates": 400}


def run() -> list[Row]:
    """Return the rows of this suite."""
    (few,), (many,) = (
        fresh(f"from benchmarks.scale import run_empty; run_empty({shards})")
        for shards in (FEW, MANY)
    )
    gaussian = load("gaussian")
    config = gaussian.configured(SWEEP)
    alone = seconds(gaussian, config, InProcess())
    processes = seconds(gaussian, config, LocalProcesses(WORKERS))
    dask = seconds(gaussian, config, DaskCluster(workers=WORKERS))
    empty = seconds(EMPTY, {"seed": 0, "shards": 10_000}, DaskCluster(workers=WORKERS))
    sweep = "Gaussian sweep, start-up included"
    return [
        *stored_rows(),
        Row(f"{sweep}: {WORKERS} processes against one", processes, alone, 1.7),
        Row(f"{sweep}: Dask, {WORKERS} workers, against one", dask, alone, 1.6),
        Row("10,000 empty shards through Dask, against 60 s", empty, EMPTY_SECONDS, 1),
        Row(
            f"peak memory of the driver, {MANY:,} shards against {FEW:,}", many, few, 1 / 1.1, "MB"
        ),
    ]


def seconds(experiment: Runnable, config: Config, executor: Executor) -> float:
    """Seconds of a whole run, from nothing to its result."""
    with tempfile.TemporaryDirectory() as folder:
        return wall_seconds(lambda: execute(experiment, config, Path(folder), executor=executor))


def run_empty(shards: int) -> None:
    """Run empty shards in this process; print its peak memory in megabytes."""
    seconds(EMPTY, {"seed": 0, "shards": shards}, InProcess())
    print(peak_megabytes())
