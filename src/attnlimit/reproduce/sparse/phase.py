"""Who wins where: the best classifier for each strength and number of bags."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.sparse.rows import caption, keep, paired, seed_number, where, worst
from attnlimit.sparse.law.end_to_end import best_split
from attnlimit.sparse.law.readout import readout
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.simulate import simulate_protocol, simulate_readout

NAMES = {"attention": "attention", "pooled": "mean pooling", "vectorized": "all tokens"}


def config(paper: bool) -> Config:
    """A grid of strengths and sample sizes; some of its points are trained on drawn bags."""
    fine = {"strengths": np.linspace(0.5, 6, 12), "alphas": np.geomspace(0.5, 64, 12)}
    coarse = {"strengths": np.linspace(0.5, 6, 8), "alphas": np.geomspace(0.5, 64, 8)}
    grid = fine if paper else coarse
    return {
        "length": 10,
        "signals": 1,
        "prior": 0.5,
        "ridge": 0.1,
        "strengths": grid["strengths"].tolist(),
        "alphas": grid["alphas"].tolist(),
        "checked": [[2.0, 4.0], [3.0, 2.0], [3.0, 8.0], [4.0, 4.0], [5.0, 2.0], [5.0, 8.0]],
        "dim": 500 if paper else 150,
        "replicates": 8,
    }


def shards(config: Config) -> list[Shard]:
    """One for each strength, one for each checked point."""
    base = {k: config[k] for k in ("length", "signals", "prior", "ridge")}
    lines = [
        {**base, "kind": "grid", "strength": s, "alphas": config["alphas"]}
        for s in config["strengths"]
    ]
    points = [
        {**base, "kind": "point", "strength": s, "alphas": [a]} | _sizes(config)
        for s, a in config["checked"]
    ]
    return lines + points


def _sizes(config: Config) -> dict[str, int]:
    return {"dim": config["dim"], "replicates": config["replicates"]}


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Error of each classifier at each alpha, the query's bags counted in."""
    task = SparseTask(shard["length"], shard["signals"], shard["strength"], shard["prior"])
    ridge, frames = shard["ridge"], []
    for alpha in shard["alphas"]:
        labels = {"kind": shard["kind"], "strength": task.strength, "alpha": alpha}
        split = best_split(task, alpha, ridge=ridge, dim=shard.get("dim"))
        measured = None
        if shard["kind"] == "point":
            sizes = {
                "dim": shard["dim"],
                "replicates": shard["replicates"],
                "seed": seed_number(seed),
            }
            a = split.alignment
            measured = simulate_protocol(
                task,
                split.alpha0,
                split.alpha1,
                ridge=ridge,
                lr_w=a.lr_w,
                lr_b=a.lr_b,
                lr_q=a.lr_q,
                **sizes,
            )
        predicted = {"test_error": split.test_error}
        frames.append(
            paired({**labels, "model": "attention", "split": split.fraction}, predicted, measured)
        )
        for model in ("pooled", "vectorized"):
            found = readout(task, alpha, model, ridge=ridge)
            if shard["kind"] == "point":
                measured = simulate_readout(task, alpha, model, ridge=ridge, **sizes)
            predicted = {"test_error": found.test_error}
            frames.append(paired({**labels, "model": model, "split": np.nan}, predicted, measured))
    return pd.concat(frames)


def winners(curves: pd.DataFrame) -> pd.DataFrame:
    """The classifier of least predicted error at each grid point, and by what factor."""
    grid = where(curves, kind="grid")
    wide = grid.pivot(index=["strength", "alpha"], columns="model", values="predicted")
    ranked = np.sort(wide.to_numpy(), axis=1)
    return pd.DataFrame(
        {
            "winner": wide.idxmin(axis=1),
            "least_error": ranked[:, 0],
            "factor": ranked[:, 1] / ranked[:, 0],
        }
    ).reset_index()


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """The winner at each point, and error against strength at three sample sizes."""
    won = winners(curves)
    won["close"] = won["least_error"] > 0.45
    series = [
        Series(part["strength"], part["alpha"], "points", f"{name} wins", model)
        for model, name in NAMES.items()
        if len(part := won[(won["winner"] == model) & ~won["close"]])
    ]
    lost = won[won["close"]]
    series.append(
        Series(lost["strength"], lost["alpha"], "points", "nobody (error above 45 %)", "nobody")
    )
    lines = []
    alphas = config["alphas"]
    grid = where(curves, kind="grid")
    for alpha, style in zip(
        (alphas[2], alphas[len(alphas) // 2 + 1]), ("dashed", "line"), strict=True
    ):
        for model, name in NAMES.items():
            line = where(grid, model=model, alpha=alpha)
            label = f"{name}, alpha {alpha:.3g}"
            lines.append(Series(line["strength"], line["predicted"], style, label, model))
    return FigureSpec(
        "Who wins where",
        (
            Panel(
                "least test error",
                "signal strength",
                "labelled bags per dimension, alpha",
                tuple(series),
                x_scale="linear",
                y_limits=(0.3, 500.0),
            ),
            Panel(
                "test error",
                "signal strength",
                "test error",
                tuple(lines),
                x_scale="linear",
            ),
        ),
        caption=caption(
            f"L = {config['length']}, R = {config['signals']}, ridge {config['ridge']:g}; "
            "attention spends part of the same bags on its query, split and sharpness chosen best."
        ),
    )


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured error at the checked points."""
    points = where(curves, kind="point")
    rows = []
    for (strength, alpha), part in points.groupby(["strength", "alpha"], sort=False):
        row: dict[str, object] = {"strength": strength, "alpha": alpha}
        for cell in part.itertuples():
            row[NAMES[str(cell.model)]] = cell.predicted
            row[f"{NAMES[str(cell.model)]} measured"] = cell.measured
            row[f"{NAMES[str(cell.model)]} +-"] = cell.stderr
        rows.append(row)
    return pd.DataFrame(rows)


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """Agreement, and how often each wins."""
    won = winners(curves)
    shares = won["winner"].value_counts(normalize=True)
    said = ", ".join(f"{NAMES[str(m)]} {share:.0%}" for m, share in shares.items())
    return [worst(where(curves, kind="point")), f"least predicted error on the grid: {said}."]


EXPERIMENT = Experiment(
    name="sparse-phase",
    title="Sparse tokens: who wins where, in strength and number of bags",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
    remarks=remarks,
)
