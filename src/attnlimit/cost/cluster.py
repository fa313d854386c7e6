"""How long do many shards take on many workers? Simulated event by event, with faults.

One driver hands out shards and stores what comes back, one at a time; workers do one shard at a
time, may die in the middle of it, and are replaced. No clock is read, and a seed fixes everything.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.runs.attempts import TRIES


@dataclass(frozen=True)
class Cluster:
    """Workers and what they suffer."""

    workers: int
    driver: float = 0.0  # seconds of the driver for each shard
    start: float = 0.0  # seconds until a worker is ready, at first and after a death
    deaths: float = 0.0  # of each worker, in an hour of work

    def __post_init__(self) -> None:
        checks.count(self.workers, "--workers")
        for name in ("driver", "start", "deaths"):
            if checks.real_number(getattr(self, name), name) < 0:
                raise BadInput(f"{name} must not be negative, got {getattr(self, name):g}.")


@dataclass(frozen=True)
class Simulated:
    """What a simulated run took."""

    workers: int
    seconds: float  # from nothing to the last shard stored
    work: float  # seconds of all shards that were stored
    lost: float  # seconds of work that died with its worker
    deaths: int
    set_aside: int  # shards whose workers died at every try
    driver_busy: float  # share of the time

    @property
    def efficiency(self) -> float:
        """Useful work over what the workers could have done."""
        return self.work / (self.workers * self.seconds)


def simulate(shards: Sequence[float] | Array, cluster: Cluster, seed: int = 0) -> Simulated:
    """Run shards that take so many seconds each, in their order.

    A shard costs the driver `cluster.driver` seconds when it comes back; only then is the worker
    given its next one. A shard whose worker died is next in line, up to three tries.
    """
    seconds = _seconds(shards)
    rng = np.random.default_rng(seed)
    waiting = deque((0.0, index, TRIES) for index in range(len(seconds)))  # since when, tries left
    idle = [cluster.start] * cluster.workers  # when each becomes free: a heap
    running: list[_Attempt] = []  # a heap
    free = end = work = lost = 0.0
    deaths = set_aside = 0
    while waiting or running:
        if waiting and idle and (not running or max(idle[0], waiting[0][0]) <= running[0].end):
            since, shard, tries = waiting.popleft()
            begin = max(heapq.heappop(idle), since)
            life = rng.exponential(3600 / cluster.deaths) if cluster.deaths else np.inf
            spent = float(min(life, seconds[shard]))
            heapq.heappush(
                running, _Attempt(begin + spent, shard, tries - 1, spent, life < seconds[shard])
            )
            continue
        attempt = heapq.heappop(running)
        end = max(end, attempt.end)
        if attempt.died:
            deaths += 1
            lost += attempt.spent
            if attempt.tries:
                waiting.appendleft((attempt.end, attempt.shard, attempt.tries))
            set_aside += not attempt.tries
            heapq.heappush(idle, attempt.end + cluster.start)
        else:
            work += attempt.spent
            end = free = max(free, attempt.end) + cluster.driver
            heapq.heappush(idle, free)
    busy = cluster.driver * (len(seconds) - set_aside) / end if end else 0.0
    return Simulated(cluster.workers, end, work, lost, deaths, set_aside, busy)


@dataclass(frozen=True, order=True)
class _Attempt:
    end: float
    shard: int
    tries: int  # left
    spent: float
    died: bool


def _seconds(shards: Sequence[float] | Array) -> Array:
    seconds = checks.real_array(shards, "shards", ndim=1)
    if not len(seconds) or (seconds < 0).any():
        raise BadInput("give the seconds of at least one shard, none of them negative.")
    return seconds


def scaling(
    measured: Sequence[float] | Array,
    shards: int,
    workers: Sequence[int],
    *,
    driver: float,
    start: float,
    deaths: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Simulate a run of `shards` shards, with times drawn from measured ones, on many workers."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(_seconds(measured), checks.count(shards, "--shards"))
    rows = []
    for count in workers:
        quiet = simulate(drawn, Cluster(count, driver, start), seed)
        row = {
            "workers": count,
            "hours": quiet.seconds / 3600,
            "efficiency %": 100 * quiet.efficiency,
            "driver busy %": 100 * quiet.driver_busy,
        }
        if deaths:
            hurt = simulate(drawn, Cluster(count, driver, start, deaths), seed)
            row |= {
                "deaths": hurt.deaths,
                "hours with deaths": hurt.seconds / 3600,
                "work lost %": 100 * hurt.lost / (hurt.work + hurt.lost),
                "set aside": hurt.set_aside,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def shard_seconds(folder: Path) -> Array:
    """Seconds that each finished shard of a run folder took."""
    from attnlimit.files import read_json
    from attnlimit.runs import RunFolder

    run = RunFolder.open(folder)
    found = []
    for note in sorted((run.path / "shards").glob("*.json")):
        said = read_json(run.file(f"shards/{note.name}"))
        seconds = said.get("seconds") if isinstance(said, dict) else None
        if isinstance(seconds, (int, float)) and np.isfinite(seconds) and seconds >= 0:
            found.append(float(seconds))
    if not found:
        raise BadInput(f"{folder} has no finished shards to learn their seconds from.")
    return np.array(found)
