"""How well does work spread? Two cores against one, and what a shard costs beside its work."""

from __future__ import annotations

import tempfile
from pathlib import Path

from attnlimit import budget
from attnlimit.models import open_capture
from attnlimit.models.load.bundled import BUNDLED
from attnlimit.reproduce import load
from attnlimit.reproduce.plan_run import plan_by_workers
from attnlimit.runs import DaskCluster, Executor, InProcess, LocalProcesses, execute
from attnlimit.runs.experiment import Config, Runnable
from attnlimit.survey import ask, ask_stored, write_captures
from benchmarks.empty_shards import EXPERIMENT as EMPTY
from benchmarks.row import Row, fresh, peak_megabytes, wall_seconds

WORKERS = 2
EMPTY_SECONDS = 60.0
FEW, MANY = 1_000, 100_000
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
        *stored_plan(),
        Row(f"{sweep}: {WORKERS} processes against one", processes, alone, 1.7),
        Row(f"{sweep}: Dask, {WORKERS} workers, against one", dask, alone, 1.6),
        Row("10,000 empty shards through Dask, against 60 s", empty, EMPTY_SECONDS, 1),
        Row(
            f"peak memory of the driver, {MANY:,} shards against {FEW:,}", many, few, 1 / 1.1, "MB"
        ),
    ]


def stored_plan() -> list[Row]:
    """Return what workers that read a stored capture of SmolLM2 bring, and what they hold."""
    if BUNDLED["smollm2"].path is None:
        return []
    with tempfile.TemporaryDirectory() as place:
        small, large = Path(place) / "small", Path(place) / "large"
        kept = list(range(0, 30, 3))
        write_captures(ask("smollm2", tokens=512, parts=1, layers=[0]), small)
        write_captures(ask("smollm2", tokens=512, parts=1, layers=kept), large)
        asked = ask_stored(large)
        alone, spread = (
            wall_seconds(lambda who=who: plan_by_workers(asked, who))  # type: ignore[misc]
            for who in (InProcess(), LocalProcesses(WORKERS))
        )
        (few,), (many,) = (
            fresh(f"from benchmarks.scale import budget_one; budget_one({str(folder)!r})")
            for folder in (small, large)
        )
    plan = f"plan of {len(kept)} layers of SmolLM2 from a store, start-up included"
    return [
        Row(f"{plan}: {WORKERS} processes against one", spread, alone, 1.7),
        Row(f"peak memory of a worker, {len(kept)} layers against 1", many, few, 1 / 1.1, "MB"),
    ]


def budget_one(folder: str) -> None:
    """Budget one head of a stored capture and print this process's peak memory."""
    budget(open_capture(folder)[0, 0])
    print(peak_megabytes())


def seconds(experiment: Runnable, config: Config, executor: Executor) -> float:
    """Seconds of a whole run, from nothing to its result."""
    with tempfile.TemporaryDirectory() as folder:
        return wall_seconds(lambda: execute(experiment, config, Path(folder), executor=executor))


def run_empty(shards: int) -> None:
    """Run empty shards in this process; print its peak memory in megabytes."""
    seconds(EMPTY, {"seed": 0, "shards": shards}, InProcess())
    print(peak_megabytes())
