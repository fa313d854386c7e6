"""Two cores against one, and the cost of an empty shard."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from attnlimit.reproduce import Config, Experiment, execute, load
from attnlimit.runs import ProcessPool
from benchmarks.empty_shards import EXPERIMENT as EMPTY
from benchmarks.row import Row, fresh, peak_megabytes, wall_seconds
from benchmarks.stored import stored_rows

WORKERS = 2
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
    alone = seconds(gaussian, config, nullcontext)
    processes = seconds(gaussian, config, partial(ProcessPool, WORKERS))
    dask = seconds(gaussian, config, dask_cluster)
    empty = seconds(EMPTY, {"seed": 0, "shards": 10_000}, dask_cluster)
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


@contextmanager
def dask_cluster() -> Iterator[Executor]:
    """Start a Dask cluster of single-threaded processes on this machine."""
    from dask.distributed import Client, LocalCluster

    with LocalCluster(WORKERS, threads_per_worker=1) as cluster, Client(cluster) as client:
        yield client.get_executor(pure=False)


def seconds(experiment: Experiment, config: Config, start: Callable[[], Any]) -> float:
    """Seconds of a whole run, from the start of its executor to its result."""

    def work() -> None:
        with start() as executor:
            execute(experiment, config, Path(folder), executor=executor)

    with tempfile.TemporaryDirectory() as folder:
        return wall_seconds(work)


def run_empty(shards: int) -> None:
    """Run empty shards in this process; print its peak memory in megabytes."""
    seconds(EMPTY, {"seed": 0, "shards": shards}, nullcontext)
    print(peak_megabytes())
