"""Do whole runs take as long as predicted? Two small ones, on processes of this machine."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from attnlimit.cost import counts
from attnlimit.cost.cluster import Cluster, shard_seconds, simulate
from attnlimit.cost.estimate import estimate
from attnlimit.cost.job import Job
from attnlimit.cost.rates import Rates
from attnlimit.cost.shape import NAMED

if TYPE_CHECKING:
    from attnlimit.checks import Array
    from attnlimit.reproduce import Config, Experiment

# The Gaussian sweep of `attnlimit reproduce`, at three temperatures.
SIZES = {"scales": [0.05, 4.0, 50.0], "n": [500, 1000, 2000, 4000], "replicates": 120, "block": 10}
WORKERS = (1, 2)
MODEL = {"model": "minilm", "tokens": 256, "replicates": 50}


def check_cluster(rates: Rates) -> pd.DataFrame:
    """Run shards on one process and on two; simulate both with the seconds of the one's shards.

    And with their own: two processes share the machine's memory, and whatever else runs.
    """
    from attnlimit.reproduce import load

    experiment = load("gaussian")
    config = experiment.config(False) | SIZES
    driver = rates.of("driver", counts.shard(0))
    start = rates.of("start", counts.Work(0, {"calls": 1.0}))
    rows, alone = [], None
    for workers in WORKERS:
        taken, seconds = _run(experiment, config, workers)
        alone = seconds if alone is None else alone
        cluster = Cluster(workers, driver, start)
        simulated, own = simulate(alone, cluster), simulate(seconds, cluster)
        rows.append(
            {
                "workers": workers,
                "shards": len(seconds),
                "shard s": seconds.mean(),
                "simulated s": simulated.seconds,
                "measured s": taken,
                "ratio": simulated.seconds / taken,
                "simulated from its own shards s": own.seconds,
                "ratio, own shards": own.seconds / taken,
            }
        )
    return pd.DataFrame(rows)


def check_measure(rates: Rates) -> pd.DataFrame:
    """`attnlimit measure` on every head of MiniLM, start to end on two processes."""
    from attnlimit.reproduce import load
    from attnlimit.reproduce.model import model_config

    config = model_config(**MODEL)  # type: ignore[arg-type]
    texts = 1 + len(config["others"])
    job = Job(NAMED["minilm"], config["tokens"], config["queries"], texts, config["replicates"])
    workers = WORKERS[-1]
    total = estimate(job, rates, workers).totals["measure"]
    taken, seconds = _run(load("model"), config, workers)
    # A worker's first shard loads and captures; only its start comes before.
    start = rates.of("start", counts.Work(0, {"calls": 1.0}))
    rows = {
        "seconds of all shards": (total.core_seconds - workers * start, float(seconds.sum())),
        f"seconds on {workers} processes": (total.seconds, taken),
    }
    what = f"measure minilm, {texts} texts of {config['tokens']} tokens"
    return pd.DataFrame(
        [
            {"what": what, "": name, "predicted": said, "measured": found, "ratio": said / found}
            for name, (said, found) in rows.items()
        ]
    )


def _run(experiment: Experiment, config: Config, workers: int) -> tuple[float, Array]:
    """Seconds of a whole run on the wall, and those of its shards."""
    from attnlimit.runs import LocalProcesses, execute

    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        folder = execute(experiment, config, Path(place), executor=LocalProcesses(workers))
        return time.perf_counter() - began, shard_seconds(folder.path)
