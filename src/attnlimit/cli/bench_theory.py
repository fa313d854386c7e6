"""How fast is theory? The exact law against brute force, and a whole grid of predictions."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import attnlimit as al

GRID_SECONDS = 10.0
GRID_MEGABYTES = 500.0
_SCALES = np.geomspace(0.05, 50, 12)
_SIZES = np.unique(np.geomspace(1000, 30_000, 12).astype(int))


def bench_theory() -> list[tuple[str, float, float, float, float]]:
    """Rows (what, measured, baseline, ratio, target)."""
    # First, while this process is small: a child's peak memory counts from its parent's.
    seconds, megabytes = grid_cost()
    exact, brute = pointwise_seconds()
    return [
        (
            "exact pointwise law at n = 10^9 against one draw of 10^6 tokens, seconds",
            exact,
            brute,
            brute / exact,
            100.0,
        ),
        (
            "12 horizons x 12 n, three statistics, d = 50, against 10 s",
            seconds,
            GRID_SECONDS,
            GRID_SECONDS / seconds,
            1.0,
        ),
        (
            "peak memory of that process, everything included, against 500 MB",
            megabytes,
            GRID_MEGABYTES,
            GRID_MEGABYTES / megabytes,
            1.0,
        ),
    ]


def pointwise_seconds() -> tuple[float, float]:
    """Seconds for the exact law at n = 10^9, and for one brute-force replicate at n = 10^6."""
    head, tokens = al.Head(0.7 * np.eye(50)), al.Gaussian(dim=50, variance=0.1)
    x = np.ones(50)
    generator = np.random.default_rng(0)
    exact = _best(lambda: al.pointwise_error(head, tokens, x, [10**9]))
    brute = _best(lambda: head(x, tokens.sample(10**6, generator)), repeats=3)
    return exact, brute


def grid_cost() -> tuple[float, float]:
    """Seconds and megabytes of the whole grid, in a fresh process so that memory is its own."""
    code = "from attnlimit.cli.bench_theory import predict_grid; predict_grid()"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(found[0]), float(found[1])


def predict_grid() -> None:
    """Predict every statistic at 12 horizons and 12 n; print seconds and megabytes."""
    generator = np.random.default_rng(42)
    query, key, value = (generator.standard_normal((50, 50)) / np.sqrt(50) for _ in range(3))
    tokens = al.Gaussian(dim=50, variance=0.1)
    start = time.perf_counter()
    for scale in _SCALES:
        root = np.sqrt(scale)
        head = al.Head.from_projections(root * query, root * key, value)
        for statistic in ("mean", "covariance", "pointwise"):
            al.predict(head, tokens, statistic, _SIZES)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.perf_counter() - start, megabytes)


def _best(run: Callable[[], object], repeats: int = 20) -> float:
    """The fastest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
