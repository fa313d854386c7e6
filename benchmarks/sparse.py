"""Sparse-token solvers against usual research code and fixed times."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from attnlimit.bags import Bags
from attnlimit.bags import plan as plan_bags
from attnlimit.errors import NotConverged
from attnlimit.sparse.quadrature import attention_points
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import learning_curve, readout
from benchmarks.row import Row, wall_seconds

TASK = SparseTask(10, 1, 5.0, 0.5)
ACCURACY = 1e-4


def run(settings: int = 25) -> list[Row]:
    """Return the rows of this suite."""
    result = _median_readout(settings)
    three = _curves()
    ours, research = _against_research_code()
    return [
        Row(f"one logistic readout, median of {settings}, against 0.3 s", result, 0.3, 1),
        Row("theory of sparse-curves, 3 models x 20 alpha, against 10 s", three, 10, 1),
        Row("logistic readout, against quad around minimize_scalar at 1e-4", ours, research, 50),
        Row("plan of 1000 bags of 100 in 100 dimensions, CPU, against 60 s", _plan(), 60, 1),
    ]


def _plan() -> float:
    """CPU seconds of a plan for bags of the theory's own kind."""
    instances, labels = SparseTask(100, 2, 4.0, 0.5).sample(1000, 100, seed=0)
    pilot = Bags(tuple(np.asarray(instances, np.float64)), np.asarray(labels, np.int64))
    start = time.process_time()
    plan_bags(pilot)
    return time.process_time() - start


def _median_readout(settings: int) -> float:
    """Median time of attention readouts at random settings, each from a cold start."""
    rng = np.random.default_rng(0)
    times = []
    for _ in range(settings):
        length = int(rng.integers(2, 101))
        task = SparseTask(
            length,
            int(rng.integers(1, min(5, length) + 1)),
            rng.uniform(0, 8),
            rng.uniform(0.05, 0.95),
        )
        alpha, ridge = float(np.exp(rng.uniform(np.log(0.1), np.log(50)))), 10 ** rng.uniform(-8, 1)
        cosine, sharpness = rng.uniform(-1, 1), rng.uniform(0, 20)
        attention_points.cache_clear()

        def solve(
            task: SparseTask = task,
            alpha: float = alpha,
            ridge: float = ridge,
            cosine: float = cosine,
            sharpness: float = sharpness,
        ) -> object:
            return readout(task, alpha, cosine=cosine, sharpness=sharpness, ridge=ridge)

        times.append(wall_seconds(solve))
    return float(np.median(times))


def _curves() -> float:
    alphas = np.geomspace(0.25, 16, 20)

    def solve() -> None:
        for model in ("attention", "pooled", "vectorized"):
            learning_curve(TASK, alphas, model, cosine=0.95, sharpness=1.0, ridge=1e-5)

    return wall_seconds(solve)


def _against_research_code() -> tuple[float, float]:
    """The same pooled system, solved here and by nested quadrature, to equal accuracy."""
    alpha, ridge = 2.0, 1e-2
    readout(TASK, alpha, "pooled", ridge=ridge)
    repeats = 20
    ours = (
        wall_seconds(lambda: [readout(TASK, alpha, "pooled", ridge=ridge) for _ in range(repeats)])
        / repeats
    )
    start = time.perf_counter()
    research_error = _research_code(alpha, ridge)
    research = time.perf_counter() - start
    gap = abs(research_error - readout(TASK, alpha, "pooled", ridge=ridge).test_error)
    if gap > ACCURACY:
        raise NotConverged(f"the two solvers differ by {gap:.2g} in test error.", reached=gap)
    return ours, research


def _research_code(alpha: float, ridge: float) -> float:
    """Damped iteration, scipy.integrate.quad over the noise, a scalar minimiser for the prox."""
    signal, rho = TASK.strength * TASK.signals / TASK.length, 1 / np.sqrt(TASK.length)
    classes = ((1.0, TASK.prior), (-1.0, 1 - TASK.prior))
    m, b, rest, chi = 0.0, 0.0, 1.0, 1.0

    def slope(z: float, y: float, gamma: float) -> float:
        result = minimize_scalar(
            lambda x: np.logaddexp(0, -y * x) + (x - z) ** 2 / (2 * gamma),
            bounds=(z - gamma - 1, z + gamma + 1),
            method="bounded",
            options={"xatol": 1e-7},
        )
        return float(z - result.x) / gamma

    def average(f: Callable[[float, float, float], float]) -> float:
        total = 0.0
        r = np.sqrt(m**2 + rest)
        for y, prior in classes:
            centre = m * signal * (y > 0) + b

            def weighted(g: float, y: float = y, centre: float = centre) -> float:
                value = slope(centre + rho * r * g, y, chi * rho**2)
                return f(value, g, y) * np.exp(-(g**2) / 2) / np.sqrt(2 * np.pi)

            total += prior * quad(weighted, -7, 7, epsabs=1e-6, epsrel=1e-6)[0]
        return total

    for _ in range(200):
        r = np.sqrt(m**2 + rest)
        response = rho * average(lambda h, g, y: g * h) / r
        new = (
            -average(lambda h, g, y: signal * h * (y > 0)) / (ridge + response),
            b - average(lambda h, g, y: h) / (response / rho**2),
            rho**2 * average(lambda h, g, y: h**2) / (alpha * (ridge + response) ** 2),
            1 / (alpha * (ridge + response)),
        )
        change = max(abs(x - y) / (1 + abs(x)) for x, y in zip(new, (m, b, rest, chi), strict=True))
        m, b, rest, chi = (0.7 * x + 0.3 * y for x, y in zip(new, (m, b, rest, chi), strict=True))
        if change < 1e-5:
            break
    scale = rho * np.sqrt(m**2 + rest)
    return float(TASK.prior * ndtr(-(m * signal + b) / scale) + (1 - TASK.prior) * ndtr(b / scale))
