"""The Monte Carlo engine against torch's fused attention and a plain loop."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.head import Head
from attnlimit.reproduce.experiment import grid
from attnlimit.reproduce.temperatures import paper_head
from attnlimit.simulate.engine import prefix_outputs
from attnlimit.simulate.fit import fit_rate
from attnlimit.simulate.measure import samples_curve
from attnlimit.simulate.sweep import sweep
from attnlimit.threads import one_thread
from attnlimit.tokens import Gaussian
from benchmarks.row import Row, core_seconds

SIZES = grid(1000, 30000, 12)
SCALES = (1.0, 20.0, 50.0)
STATISTICS = ["mean", "covariance"]
DRAWS = 60
SPREAD_DRAWS = 150
CHEAP = 2500
DIM = 50


def run() -> list[Row]:
    """Throughput in (query, key) pairs, and cost for the same standard error.

    One thread, and seconds of processor time: other work on the machine then hardly matters.
    """
    with one_thread():
        rows = [_throughput()]
        plain_seconds = _plain_seconds()
        for scale in SCALES:
            rows.extend(_cost(scale, plain_seconds))
        return rows


def _throughput() -> Row:
    """Pairs per second of the whole engine, merging included, and of fused attention alone."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = 2048, 16384
    tilts = torch.randn(2, queries, DIM, generator=generator)
    tokens = torch.randn(2, keys, DIM, generator=generator)
    sizes = [keys // 4, keys // 2, keys]
    ours = core_seconds(lambda: list(prefix_outputs(tilts, tokens, sizes, [queries] * 3)), 5)
    stacked = tokens[:, None]
    fused = core_seconds(
        lambda: scaled_dot_product_attention(tilts[:, None], stacked, stacked, scale=1.0), 5
    )
    pairs = 2 * queries * keys
    name = "engine, against torch's fused attention on the same shapes"
    return Row(name, pairs / ours, pairs / fused, 0.95, "pairs/s", larger=True)


def _plain_mean(tokens: Tensor, score: Tensor, value: Tensor) -> Tensor:
    """Mean output by one n x n softmax, as a plain loop computes it; rows in blocks of 4096.

    Blocks only spare the memory: a whole n x n matrix is no faster.
    """
    total = torch.zeros(tokens.shape[1])
    for start in range(0, len(tokens), 4096):
        weights = torch.softmax(tokens[start : start + 4096] @ score.T @ tokens.T, dim=1)
        total += (weights @ tokens).sum(0)
    return value @ (total / len(tokens))


def _plain_seconds() -> float:
    """Seconds of one replicate of the plain loop: fresh draws for each n of the grid."""
    head, tokens = paper_head(DIM, 20.0), Gaussian(dim=DIM, variance=0.1)
    score, value = torch.from_numpy(head.A).float(), torch.from_numpy(head.V).float()
    total = 0.0
    for n in SIZES:
        repeats = 3 if n < 6000 else 1
        draws = [torch.from_numpy(tokens.sample(n, r)).float() for r in range(repeats)]
        start = time.process_time()
        for draw in draws:
            _plain_mean(draw, score, value)
        total += (time.process_time() - start) / repeats
    return total


def _cost(scale: float, plain_seconds: float) -> list[Row]:
    """Seconds to a standard error of 1 % of the mean squared error, and of 0.01 in the slope.

    Each statistic is charged with the draws of both, and the plain loop with those of the mean.
    """
    head, tokens = paper_head(DIM, scale), Gaussian(dim=DIM, variance=0.1)
    sizes = np.asarray(SIZES, dtype=np.int64)
    start = time.process_time()
    samples = sweep(head, tokens, STATISTICS, sizes, DRAWS, np.random.SeedSequence(0))
    curves = {name: samples_curve(samples[name]) for name in STATISTICS}
    seconds = time.process_time() - start
    spread = _plain_spread(head, tokens)
    curve = curves["mean"]
    ours = seconds * (curve.stderr / curve.value) ** 2 / 0.01**2
    plain = np.full(len(sizes), plain_seconds * spread["mean"] ** 2 / 0.01**2)
    worst = int(np.argmin(plain / ours))
    at_worst = (
        f"scale {scale:g}: to E|m_n - m|² ± 1 %, worst n ({sizes[worst]}), against a plain loop"
    )
    rows = [Row(at_worst, float(ours[worst]), float(plain[worst]), 20)]
    log_n = np.log(sizes.astype(np.float64))
    log_n -= log_n.mean()
    for name, entry in curves.items():
        our_slope = seconds * fit_rate(entry).stderr ** 2 / 0.01**2
        plain_slope = plain_seconds * (spread[name] / 2) ** 2 / (log_n**2).sum() / 0.01**2
        to_slope = f"scale {scale:g}: to the {name}'s slope ± 0.01, against a plain loop"
        rows.append(Row(to_slope, our_slope, float(plain_slope), 20))
    return rows


def _plain_spread(head: Head, tokens: Gaussian) -> dict[str, float]:
    """Relative standard deviation of a squared error in one replicate, every token asked.

    No controls. It hardly depends on n, so the n where many replicates are cheap stand for all.
    """
    sizes = np.asarray([n for n in SIZES if n <= CHEAP], dtype=np.int64)
    draws = sweep(
        head, tokens, STATISTICS, sizes, SPREAD_DRAWS, np.random.SeedSequence(1), queries=CHEAP
    )
    values = {name: draws[name].values for name in STATISTICS}
    return {
        name: float(np.mean(value.std(axis=0, ddof=1) / value.mean(axis=0)))
        for name, value in values.items()
    }
