"""How two gradient steps align the query, against the number of bags."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.sparse.rows import (
    caption,
    in_order,
    keep,
    paired,
    seed_number,
    where,
    worst,
)
from attnlimit.sparse.law.alignment import query_alignment
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.simulate import simulate_alignment

SETTINGS = {
    "logistic, L 10, R 1, strength 5": ([10, 1, 5.0, 0.5], "logistic", 1.0, 1.0),
    "logistic, L 10, R 1, strength 4, prior 0.3": ([10, 1, 4.0, 0.3], "logistic", 1.0, 6.0),
    "square, L 8, R 2, strength 3, small step": ([8, 2, 3.0, 0.5], "square", 0.5, 1.0),
    "square, L 8, R 2, strength 3, step too large": ([8, 2, 3.0, 0.5], "square", 5.0, 1.0),
}


def config(paper: bool) -> Config:
    """Four settings, the last with a step that turns the query away."""
    return {
        "settings": SETTINGS,
        "dim": 1000 if paper else 400,
        "replicates": 10 if paper else 8,
        "alphas": [0.5, 1.0, 2.0, 4.0, 8.0],
    }


def shards(config: Config) -> list[Shard]:
    """One for each setting and alpha0."""
    return [
        {
            "name": name,
            "setting": setting,
            "alpha0": alpha0,
            "dim": config["dim"],
            "replicates": config["replicates"],
        }
        for name, setting in config["settings"].items()
        for alpha0 in config["alphas"]
    ]


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Cosine and norm, predicted beside measured."""
    sizes, loss, lr_w, lr_b = shard["setting"]
    task = SparseTask(*sizes)
    found = query_alignment(task, shard["alpha0"], loss, lr_w, lr_b)
    measured = simulate_alignment(
        task,
        shard["alpha0"],
        loss,
        lr_w,
        lr_b,
        dim=shard["dim"],
        replicates=shard["replicates"],
        seed=seed_number(seed),
    )
    labels = {"setting": shard["name"], "alpha0": shard["alpha0"], "constant": found.constant}
    return paired(labels, {"cosine": found.cosine, "norm": found.norm}, measured)


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """The cosine, and its distance from one against the law C/alpha0."""
    grid = np.geomspace(0.25, 64, 60)
    cosines, gaps = [], []
    for name, (sizes, loss, lr_w, lr_b) in config["settings"].items():
        theory = [query_alignment(SparseTask(*sizes), a, loss, lr_w, lr_b) for a in grid]
        values = np.array([a.cosine for a in theory])
        dots = where(curves, setting=name, quantity="cosine")
        cosines.append(Series(grid, values, "line", None, name))
        cosines.append(
            Series(dots["alpha0"], dots["measured"], "points", None, name, dots["stderr"])
        )
        gaps.append(Series(grid, 1 - np.abs(values), "line", name, name))
        law = theory[-1].constant / grid
        gaps.append(Series(grid[grid > 1], law[grid > 1], "dotted", None, name))
        gaps.append(
            Series(dots["alpha0"], 1 - dots["measured"].abs(), "points", None, name, dots["stderr"])
        )
    x_label = "bags per dimension, alpha0 = n0/d"
    return FigureSpec(
        "Two gradient steps align the query with the signal",
        (
            Panel(
                "cosine with the signal",
                x_label,
                "cosine",
                tuple(cosines),
                y_scale="linear",
                y_limits=(-1.05, 1.05),
            ),
            Panel("distance from perfect", x_label, "1 - |cosine|", tuple(gaps)),
        ),
        caption=caption(
            f"Lines: exact limit; dotted: C/alpha0; points: two steps taken on drawn bags at "
            f"d = {config['dim']}, {config['replicates']} replicates. A first step that is too "
            "large turns the query away from the signal."
        ),
    )


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured cosine and norm."""
    rows = []
    for name in in_order(curves["setting"]):
        for alpha0 in in_order(curves["alpha0"]):
            pair = where(curves, setting=name, alpha0=alpha0)
            row: dict[str, object] = {"setting": name, "alpha0": alpha0}
            for cell in pair.itertuples():
                row[str(cell.quantity)] = cell.predicted
                row[f"{cell.quantity} measured"] = cell.measured
                row[f"{cell.quantity} +-"] = cell.stderr
            rows.append(row)
    return pd.DataFrame(rows)


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """How well theory and simulation agree."""
    return [worst(where(curves, quantity=q)) + f" ({q})" for q in ("cosine", "norm")]


EXPERIMENT = Experiment(
    name="sparse-alignment",
    title="Sparse tokens: cosine of the query after two gradient steps, and the 1 - C/alpha0 law",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
    remarks=remarks,
)
