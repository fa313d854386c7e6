"""Does the simulated cluster take as long as a real one? A small run on one and two processes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pandas as pd

from attnlimit.cost import counts
from attnlimit.cost.cluster import Cluster, shard_seconds, simulate
from attnlimit.cost.rates import Rates

# The Gaussian sweep of `attnlimit reproduce`, at three temperatures.
SIZES = {"scales": [0.05, 4.0, 50.0], "n": [500, 1000, 2000, 4000], "replicates": 120, "block": 10}
WORKERS = (1, 2)


def check_cluster(rates: Rates) -> pd.DataFrame:
    """Run shards on one process and on two; simulate both with the seconds of the one's shards."""
    from attnlimit.experiments import load
    from attnlimit.runs import LocalProcesses, execute

    experiment = load("gaussian")
    config = experiment.config(False) | SIZES
    driver = rates.of("driver", counts.shard(0))
    start = rates.of("start", counts.Work(0, {"calls": 1.0}))
    rows, alone = [], None
    for workers in WORKERS:
        with tempfile.TemporaryDirectory() as place:
            began = time.perf_counter()
            folder = execute(experiment, config, Path(place), executor=LocalProcesses(workers))
            taken = time.perf_counter() - began
            seconds = shard_seconds(folder.path)
        alone = seconds if alone is None else alone
        simulated = simulate(alone, Cluster(workers, driver, start))
        rows.append(
            {
                "workers": workers,
                "shards": len(seconds),
                "shard s": seconds.mean(),
                "simulated s": simulated.seconds,
                "measured s": taken,
                "ratio": simulated.seconds / taken,
                "efficiency %": 100 * simulated.efficiency,
            }
        )
    return pd.DataFrame(rows)
