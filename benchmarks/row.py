"""Ratios of a measured time or size to a named baseline in the same run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Row:
    """One ratio: `measured` is ours, in `unit`; smaller is better unless `larger` is said."""

    what: str
    measured: float
    baseline: float  # the same quantity of what the row's name compares with
    target: float  # the ratio to reach
    unit: str = "s"
    larger: bool = False

    @property
    def ratio(self) -> float:
        """How many times better than the baseline."""
        return self.measured / self.baseline if self.larger else self.baseline / self.measured


def fastest(work: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    """Shortest of several runs, for other programs only ever slow one down."""
    rows = []
    for _ in range(repeats):
        start = clock()
        work()
        rows.append(clock() - start)
    return min(rows)


def wall_seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds on the wall of the fastest of several runs."""
    return fastest(work, repeats, time.perf_counter)


def core_seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of the processor of the fastest of several runs."""
    return fastest(work, repeats, time.process_time)


def fresh(code: str) -> list[float]:
    """Numbers that a fresh process prints last: its peak memory is its own."""
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(word) for word in output.splitlines()[-1].split()]


def peak_megabytes() -> float:
    """Peak memory of this process; what getrusage says begins at that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def process_seconds(commands: list[list[str]], repeats: int) -> list[float]:
    """Median seconds of each command, started by turns so that a busy spell slows all of them."""
    taken: list[list[float]] = [[] for _ in commands]
    for turn in range(repeats + 1):
        for place, command in enumerate(commands):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first fills the caches of the disk
                taken[place].append(time.perf_counter() - start)
    return [median(times) for times in taken]
