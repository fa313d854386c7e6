"""Exact laws against brute force, and a grid of predictions."""

from __future__ import annotations

import time

import numpy as np

import attnlimit as al
from benchmarks.row import Row, fresh, peak_megabytes, wall_seconds

# Version 0.1 took 11.3 s for the same grid where one draw of 10^6 tokens took 0.755 s: both run one
# after the other on two cores that did nothing else, so that a draw stands for the machine's speed.
FIRST_GRID_DRAWS = 11.3 / 0.755
GRID_MEGABYTES = 350.0
LAW_SECONDS = 1e-3
SCALES = np.geomspace(0.05, 50, 12)
SIZES = np.unique(np.geomspace(1000, 30_000, 12).astype(int))


def run() -> list[Row]:
    """Return the rows of this suite."""
    seconds, megabytes = fresh("from benchmarks.theory import predict_grid; predict_grid()")
    head, tokens = al.Head(0.7 * np.eye(50)), al.Gaussian(dim=50, variance=0.1)
    x = np.ones(50)
    generator = np.random.default_rng(0)
    exact = wall_seconds(lambda: al.pointwise_error(head, tokens, x, [10**9]), 20)
    last = wall_seconds(lambda: al.pointwise_error(head, tokens, x, [10**12]), 20)
    brute = wall_seconds(lambda: head(x, tokens.sample(10**6, generator)), 3)
    widest = wall_seconds(lambda: al.gaussian_law(50.0, 1000), 50)
    first_grid = FIRST_GRID_DRAWS * brute
    law = "exact pointwise law at n ="
    grid = "12 horizons x 12 n, three statistics, d = 50"
    return [
        Row(f"{law} 10^9, against one draw of 10^6 tokens", exact, brute, 100),
        Row(f"{law} 10^12, against 10^9", last, exact, 0.5),
        Row("gaussian_law(50, 1000), against 1 ms", widest, LAW_SECONDS, 1),
        Row(f"{grid}, against version 0.1 as 15 draws of 10^6", seconds, first_grid, 2),
        Row("peak memory of that process, against 350 MB", megabytes, GRID_MEGABYTES, 1, "MB"),
    ]


def predict_grid() -> None:
    """Predict every statistic at 12 horizons and 12 n; print seconds and megabytes."""
    generator = np.random.default_rng(42)
    query, key, value = (generator.standard_normal((50, 50)) / np.sqrt(50) for _ in range(3))
    tokens = al.Gaussian(dim=50, variance=0.1)
    start = time.perf_counter()
    for scale in SCALES:
        root = np.sqrt(scale)
        head = al.Head.from_projections(root * query, root * key, value)
        for statistic in ("mean", "pointwise"):
            al.predict(head, tokens, statistic, SIZES)
    print(time.perf_counter() - start, peak_megabytes())
