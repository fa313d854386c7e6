"""Speed of this machine, measured once in a process and in some tenths of a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch

from attnlimit.decoding.dot import BLOCK
from attnlimit.decoding.kernels import NEVER, decode_by_keys
from attnlimit.planning.cost import CostModel

DENSE_BYTES = 48 << 20
"""Bytes read to measure dense attention, more than most caches of a CPU hold."""
MEASURED_KEYS = 4096


@lru_cache(maxsize=4)
def _measured(threads: int) -> CostModel:
    tokens, groups, width = DENSE_BYTES // (3 * 2 * 64 * 4), 3, 64
    query = torch.randn(groups, 3, width)
    key, value = (torch.randn(groups, tokens, width) for _ in range(2))

    def dense() -> None:
        torch.bmm(torch.softmax(torch.bmm(query, key.transpose(1, 2)), -1), value)

    tasks, n = 4 * threads, MEASURED_KEYS
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((tasks, width), np.float32)
    rows = rng.standard_normal((tasks, n, width), np.float32)
    codes = rng.integers(0, 256, (tasks, n // BLOCK, BLOCK * width // 2), np.uint8)
    scales = np.full((tasks, n), 0.2, np.float32)
    whole, zero = np.full(tasks, n, np.int64), np.zeros(tasks, np.int64)
    scratch, chosen = np.zeros((tasks, n), np.float32), np.zeros((tasks, 3, n), np.float32)
    out, stats = np.zeros((tasks, width), np.float32), np.zeros((tasks, 4))
    sinks = np.full(tasks, NEVER, np.float32)

    def keys() -> None:
        decode_by_keys(
            queries, np.float32(0.2), rows, rows, zero, whole, np.zeros((1, 0), np.float32),
            np.float32(0), sinks, codes, scales, np.zeros((tasks, width), np.float32),
            np.full(tasks, 64, np.float32), np.float32(0.02), 0, 0, whole[:1], scratch, chosen,
            out, stats,
        )  # fmt: skip

    return CostModel(DENSE_BYTES / _fastest(dense), tasks * n / _fastest(keys))


def cost_model() -> CostModel:
    """Return the speed of this machine with the threads that torch uses now."""
    return _measured(torch.get_num_threads())


def _fastest(call: Callable[[], None], seconds: float = 0.08) -> float:
    """Least milliseconds of several calls, the first left out."""
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best
