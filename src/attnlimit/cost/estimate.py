"""What will a job take: how many core-hours, how much memory, and how many workers?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from attnlimit import checks
from attnlimit.cost.job import Job, Stage
from attnlimit.cost.rates import Rates

SHARD_SECONDS = 20.0
HOUR = 3600.0
JOBS = ("plan", "measure")


@dataclass(frozen=True)
class Total:
    """Seconds of a whole job on so many workers."""

    job: str
    workers: int
    repeated: float  # core-seconds that every worker spends
    divided: float  # core-seconds that are shared out
    shards: int  # today one for each head
    driver: float  # seconds of the driver, all shards
    bytes: float  # of a worker, at its peak

    @property
    def seconds(self) -> float:
        """From nothing to the result: the work of a worker, the longest shard, or the driver."""
        rounds = math.ceil(self.shards / self.workers)
        return self.repeated + max(rounds * self.shard_seconds, self.driver)

    @property
    def shard_seconds(self) -> float:
        """Seconds of one shard."""
        return self.divided / self.shards

    @property
    def core_seconds(self) -> float:
        """Core-seconds of all workers."""
        return self.workers * self.repeated + self.divided

    @property
    def useful_workers(self) -> int:
        """More workers than this wait: for the driver, or because there are only so many shards."""
        fed = self.shard_seconds / max(self.driver / self.shards, 1e-12)
        return max(1, min(self.shards, int(fed)))

    def workers_for(self, hours: float) -> int | None:
        """Fewest workers that finish in so many hours; None where no number does."""
        if self.hindrance(hours):
            return None
        left = HOUR * hours - self.repeated
        return math.ceil(self.shards / math.floor(left / self.shard_seconds))

    def hindrance(self, hours: float) -> str:
        """Why no number of workers finishes in so many hours; empty where some number does."""
        given = HOUR * checks.positive(hours, "--hours")
        spans = {
            "what every worker repeats": self.repeated,
            "what every worker repeats, and one shard,": self.repeated + self.shard_seconds,
            "what every worker repeats, and the driver's part,": self.repeated + self.driver,
        }
        for name, seconds in spans.items():
            if seconds > given:
                return f"{name} takes {seconds / HOUR:.3g} h"
        return ""

    @property
    def limit(self) -> str:
        """What keeps the job from being faster."""
        if self.repeated > max(self.divided / self.workers, self.driver):
            return "what every worker repeats"
        if self.driver > self.divided / self.workers:
            return "the driver"
        if self.workers > self.shards:
            return "the number of shards"
        return "the number of workers"


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of a job, stage by stage."""

    job: Job
    workers: int
    stages: tuple[tuple[Stage, float, float], ...]  # with core-seconds, and bytes held at once
    totals: dict[str, Total]  # of `plan` and of `measure`

    def to_frame(self) -> pd.DataFrame:
        """One row for each stage."""
        rows = []
        for stage, seconds, held in self.stages:
            share = 1 if stage.by == "worker" else self.workers
            rows.append(
                {
                    "stage": stage.title,
                    "in": "plan, measure" if stage.planned else "measure",
                    "done": "by every worker" if stage.by == "worker" else "once, divided",
                    "pairs": stage.pairs,
                    "GB at once": held / 1e9,
                    "core-seconds": seconds,
                    "shards of 20 s": math.ceil(seconds / SHARD_SECONDS),
                    f"hours on {self.workers}": seconds / share / HOUR,
                }
            )
        return pd.DataFrame(rows)

    def summary(self) -> pd.DataFrame:
        """One row for each of the two jobs."""
        return pd.DataFrame(
            [
                {
                    "job": total.job,
                    "core-hours": total.core_seconds / HOUR,
                    f"hours on {total.workers}": total.seconds / HOUR,
                    "of which repeated": total.repeated / HOUR,
                    "shards": total.shards,
                    "seconds a shard": total.shard_seconds,
                    "driver hours": total.driver / HOUR,
                    "useful workers": total.useful_workers,
                    "GB a worker": total.bytes / 1e9,
                    "limited by": total.limit,
                }
                for total in self.totals.values()
            ]
        )

    def __str__(self) -> str:
        return "\n".join(
            frame.to_string(index=False, float_format=lambda v: f"{v:.3g}")
            for frame in (self.to_frame(), self.summary())
        )


def estimate(
    job: Job, rates: Rates, workers: int = 1, shard_seconds: float = SHARD_SECONDS
) -> Estimate:
    """Predict what a job takes on so many workers, each one core like that of the rates.

    A shared job is cut into shards of `shard_seconds`; today a shard is a head.
    """
    count = checks.count(workers, "--workers")
    length = checks.positive(shard_seconds, "--shard-seconds")
    stages = []
    for stage in job.stages():
        seconds = sum(rates.of(name, work) for name, work in stage.parts)
        stages.append((stage, seconds, stage.bytes / _pieces(job, stage, seconds, length)))
    driver = rates.of("driver", job.driver())
    totals = {}
    for name in JOBS:
        mine = [one for one in stages if name == "measure" or one[0].planned]
        divided = sum(spent for stage, spent, _ in mine if stage.by == "head")
        shards = math.ceil(divided / length) if job.shared else job.shape.all_heads
        totals[name] = Total(
            job=name,
            workers=count,
            repeated=sum(spent for stage, spent, _ in mine if stage.by == "worker"),
            divided=divided,
            shards=shards,
            driver=shards * driver,
            bytes=job.resident + max(held for _, _, held in mine),
        )
    return Estimate(job, count, tuple(stages), totals)


def _pieces(job: Job, stage: Stage, seconds: float, length: float) -> float:
    """Into how many pieces of queries a shared job cuts a head, or a layer of the forward pass."""
    if not job.shared or stage.by == "worker":
        return 1.0
    whole = job.shape.layers if stage.parts[0][0] == "forward" else job.shape.all_heads
    return max(1.0, seconds / whole / length)
