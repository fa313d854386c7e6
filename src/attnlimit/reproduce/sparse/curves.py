"""Test and training error against the number of bags, for the three classifiers."""

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
from attnlimit.sparse.law.readout import learning_curve, readout
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.simulate import simulate_protocol, simulate_readout

NAMES = {"attention": "attention", "pooled": "mean pooling", "vectorized": "all tokens"}


def config(paper: bool) -> Config:
    """The setting of the paper's learning curves; the query comes from two steps at alpha0."""
    return {
        "task": {"length": 10, "signals": 1, "strength": 5.0, "prior": 0.5},
        "ridge": 1e-5,
        "alpha0": 2.0,
        "sharpness": 1.0,
        "dim": 1000 if paper else 200,
        "replicates": 4 if paper else 8,
        "alphas": [0.5, 1.0, 2.0, 3.0, 4.0] if paper else [0.5, 1.0, 2.0, 4.0, 6.0, 8.0],
        "lines": 20,
    }


def shards(config: Config) -> list[Shard]:
    """One for the lines of each model, one for each simulated point."""
    common = {k: v for k, v in config.items() if k not in ("alphas", "lines", "seed")}
    low, high = min(config["alphas"]) / 2, 2 * max(config["alphas"])
    grid = np.geomspace(low, high, config["lines"]).tolist()
    lines = [{**common, "kind": "line", "model": m, "alphas": grid} for m in NAMES]
    points = [
        {**common, "kind": "point", "model": m, "alpha": a} for m in NAMES for a in config["alphas"]
    ]
    return lines + points


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Predicted errors along alpha, or predicted beside measured at one alpha."""
    task, model, ridge = SparseTask(**shard["task"]), shard["model"], shard["ridge"]
    unit = query_alignment(task, shard["alpha0"])
    lr_q = shard["sharpness"] / unit.sharpness
    query = {"cosine": unit.cosine, "sharpness": shard["sharpness"]}
    if shard["kind"] == "line":
        found = learning_curve(task, shard["alphas"], model, ridge=ridge, **query)
        return pd.concat(
            [
                paired({"kind": "line", "model": model, "alpha": r.alpha}, _errors(r), None)
                for r in found
            ]
        )
    predicted = readout(task, shard["alpha"], model, ridge=ridge, **query)
    sizes = {"dim": shard["dim"], "replicates": shard["replicates"], "seed": seed_number(seed)}
    if model == "attention":
        measured = simulate_protocol(
            task, shard["alpha0"], shard["alpha"], ridge=ridge, lr_q=lr_q, **sizes
        )
    else:
        measured = simulate_readout(task, shard["alpha"], model, ridge=ridge, **sizes)
    labels = {"kind": "point", "model": model, "alpha": shard["alpha"]}
    return paired(labels, _errors(predicted), measured)


def _errors(r: object) -> dict[str, float]:
    names = ("test_error", "train_loss", "train_error")
    return {name: float(getattr(r, name)) for name in names}


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """Test error and training loss; lines are theory, points are trained on drawn bags."""
    panels = []
    for quantity, label, scale in (
        ("test_error", "test error", "linear"),
        ("train_loss", "training loss", "log"),
    ):
        series = []
        for model, name in NAMES.items():
            line = where(curves, kind="line", model=model, quantity=quantity)
            dots = where(curves, kind="point", model=model, quantity=quantity)
            series.append(Series(line["alpha"], line["predicted"], "line", name, model))
            series.append(
                Series(dots["alpha"], dots["measured"], "points", None, model, dots["stderr"])
            )
        panels.append(
            Panel(label, "bags per dimension, alpha = n/d", label, tuple(series), y_scale=scale)
        )
    t = config["task"]
    words = (
        f"L = {t['length']}, R = {t['signals']}, strength {t['strength']:g}, prior {t['prior']:g}, "
        f"logistic loss, ridge {config['ridge']:g}. Lines: exact limit. Points: trained on drawn "
        f"bags at d = {config['dim']}, {config['replicates']} replicates. Attention's query: two "
        f"gradient steps on {config['alpha0']:g} d other bags, sharpness {config['sharpness']:g}."
    )
    return FigureSpec("What more labelled bags buy", tuple(panels), caption=caption(words))


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured test error at every simulated point."""
    points = where(curves, kind="point")
    rows = []
    for model in in_order(points["model"]):
        for alpha in in_order(points["alpha"]):
            row: dict[str, object] = {"model": NAMES[model], "alpha": alpha}
            for quantity in ("test_error", "train_loss"):
                cell = where(points, model=model, alpha=alpha, quantity=quantity).iloc[0]
                row[quantity] = cell["predicted"]
                row[f"{quantity} measured"] = cell["measured"]
                row[f"{quantity} +-"] = cell["stderr"]
            rows.append(row)
    return pd.DataFrame(rows)


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """How well theory and simulation agree."""
    return [worst(where(curves, kind="point", quantity=q)) + f" ({q})" for q in _QUANTITIES]


_QUANTITIES = ("test_error", "train_loss")
EXPERIMENT = Experiment(
    name="sparse-curves",
    title="Sparse tokens: test and training error against the number of bags, three classifiers",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
    remarks=remarks,
)
