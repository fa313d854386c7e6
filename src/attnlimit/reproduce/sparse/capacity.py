"""How many bags each classifier can separate, and linear programs that check it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.sparse.rows import caption, keep, paired, seed_number, where
from attnlimit.sparse.law.capacity import capacity
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.simulate import simulate_capacity

CASES: dict[str, dict[str, Any]] = {
    "attention": {"model": "attention", "cosine": 0.8, "sharpness": 1.0},
    "mean pooling": {"model": "pooled"},
    "all tokens": {"model": "vectorized"},
}


def config(paper: bool) -> Config:
    """Capacity against strength, and separability around it at one strength."""
    return {
        "length": 6,
        "signals": 1,
        "prior": 0.5,
        "strengths": np.linspace(0, 6, 13).tolist(),
        "checked_strength": 2.0,
        "dims": {"attention": 200, "mean pooling": 200, "all tokens": 40}
        if paper
        else {"attention": 80, "mean pooling": 80, "all tokens": 20},
        "replicates": 100 if paper else 40,
        "ratios": [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3],
    }


def shards(config: Config) -> list[Shard]:
    """One for the lines of each model, one for each simulated ratio."""
    base = {name: config[name] for name in ("length", "signals", "prior")}
    lines = [{**base, "kind": "line", "case": c, "strengths": config["strengths"]} for c in CASES]
    points = [
        {
            **base,
            "kind": "point",
            "case": case,
            "strength": config["checked_strength"],
            "ratio": ratio,
            "dim": config["dims"][case],
            "replicates": config["replicates"],
        }
        for case in CASES
        for ratio in config["ratios"]
    ]
    return lines + points


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Capacity at every strength, or the separable fraction at a ratio of it."""
    case = CASES[shard["case"]]

    def task_at(strength: float) -> SparseTask:
        return SparseTask(shard["length"], shard["signals"], strength, shard["prior"])

    def star(strength: float) -> float:
        return float(capacity(task_at(strength), **case))

    if shard["kind"] == "line":
        frames = [
            paired(
                {"kind": "line", "case": shard["case"], "strength": s, "ratio": np.nan},
                {"capacity": star(s)},
                None,
            )
            for s in shard["strengths"]
        ]
        return pd.concat(frames)
    strength, ratio = shard["strength"], shard["ratio"]
    alpha = ratio * star(strength)
    measured = simulate_capacity(
        task_at(strength),
        alpha,
        dim=shard["dim"],
        replicates=shard["replicates"],
        seed=seed_number(seed),
        **case,
    )
    labels = {"kind": "point", "case": shard["case"], "strength": strength, "ratio": ratio}
    # in the limit: all separable below the capacity, none above
    return paired(labels, {"separable": float(np.heaviside(1 - ratio, 0.5))}, measured)


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """Capacity against strength; separable fraction against alpha over alpha*."""
    lines, checks = [], []
    for case in CASES:
        line = where(curves, kind="line", case=case)
        lines.append(Series(line["strength"], line["predicted"], "line", case, case))
        dots = where(curves, kind="point", case=case)
        checks.append(Series(dots["ratio"], dots["measured"], "points", None, case, dots["stderr"]))
        checks.append(Series(dots["ratio"], dots["measured"], "dotted", None, case))
    step = Series([0.7, 1.0, 1.0, 1.3], [1.0, 1.0, 0.0, 0.0], "dashed", "limit", "limit")
    return FigureSpec(
        "How many bags can be separated at all",
        (
            Panel(
                "capacity",
                "signal strength",
                "alpha* = n/d",
                tuple(lines),
                x_scale="linear",
            ),
            Panel(
                f"linear programs at strength {config['checked_strength']:g}",
                "n over capacity",
                "separable fraction of draws",
                (*checks, step),
                x_scale="linear",
                y_scale="linear",
            ),
        ),
        caption=caption(
            f"L = {config['length']}, R = {config['signals']}, prior {config['prior']:g}; query "
            f"with cosine 0.8 and sharpness 1. Right: {config['replicates']} draws a point, "
            f"d = {config['dims']['attention']} (all tokens: {config['dims']['all tokens']} each)."
        ),
    )


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Capacities, and the ratio at which half of the draws are separable."""
    rows = []
    for case in CASES:
        line = where(curves, kind="line", case=case)
        at = line.iloc[(line["strength"] - config["checked_strength"]).abs().argmin()]
        dots = where(curves, kind="point", case=case).sort_values("ratio")
        half, error = _half(dots)
        rows.append(
            {
                "classifier": case,
                "strength": at["strength"],
                "alpha* predicted": at["predicted"],
                "alpha* measured": at["predicted"] * half,
                "+-": at["predicted"] * error,
                "dimension": config["dims"][case],
            }
        )
    return pd.DataFrame(rows)


def _half(dots: pd.DataFrame) -> tuple[float, float]:
    """Ratio at which half of the draws are separable, by a straight line near it, with error."""
    x, p = dots["ratio"].to_numpy(), dots["measured"].to_numpy()
    near = (p > 0.02) & (p < 0.98)
    if near.sum() < 2:
        return float(np.interp(0.5, p[::-1], x[::-1])), float("nan")
    error = np.maximum(dots["stderr"].to_numpy()[near], 0.02)
    (slope, level), cov = np.polyfit(x[near] - 1, p[near], 1, w=1 / error, cov="unscaled")
    half = (0.5 - level) / slope
    gradient = np.array([-half / slope, -1 / slope])
    return 1 + float(half), float(np.sqrt(gradient @ cov @ gradient))


EXPERIMENT = Experiment(
    name="sparse-capacity",
    title="Sparse tokens: how many bags are separable, against linear programs",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
)
