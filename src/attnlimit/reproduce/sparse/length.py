"""Train at one length, test at another: does attention generalise to longer bags?"""

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
from attnlimit.sparse.law.oracle import oracle_error
from attnlimit.sparse.law.readout import readout, transfer_error
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.descent import pool
from attnlimit.sparse.train.fit import fit_readout
from attnlimit.sparse.train.simulate import exact_test_error, replicate, unit_query


def config(paper: bool) -> Config:
    """Train at L = 10; test from L = 2 to 640."""
    return {
        "train_length": 10,
        "signals": 1,
        "strength": 5.0,
        "prior": 0.5,
        "alpha": 4.0,
        "ridge": 1e-2,
        "cosine": 0.95,
        "sharpnesses": [0.0, 1.0, 2.0, 4.0],
        "lengths": [2, 5, 10, 20, 40, 80, 160, 320, 640],
        "dim": 1000 if paper else 300,
        "replicates": 8,
    }


def shards(config: Config) -> list[Shard]:
    """One for each sharpness; 0 is mean pooling."""
    rest = {k: v for k, v in config.items() if k not in ("sharpnesses", "seed")}
    return [{**rest, "sharpness": tau} for tau in config["sharpnesses"]]


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Error at every length of one readout, trained on drawn bags and predicted."""
    task = SparseTask(shard["train_length"], shard["signals"], shard["strength"], shard["prior"])
    tau, dim = shard["sharpness"], shard["dim"]
    model = "attention" if tau > 0 else "pooled"
    others = [SparseTask(n, task.signals, task.strength, task.prior) for n in shard["lengths"]]
    query = unit_query(task, dim, shard["cosine"])
    setting = {"cosine": shard["cosine"], "sharpness": tau}
    trained = readout(task, shard["alpha"], model, ridge=shard["ridge"], **setting)

    def draw(rng: np.random.Generator) -> dict[str, float]:
        features, labels = [], []
        for X, y in task.batches(round(shard["alpha"] * dim), dim, rng):
            features.append(pool(X, model, query, tau))
            labels.append(y.astype(float))
        fitted = fit_readout(np.concatenate(features), np.concatenate(labels), ridge=shard["ridge"])
        return {
            str(other.length): exact_test_error(
                other, fitted, model, query, shard["cosine"], tau, rng
            )
            for other in others
        }

    measured = replicate(
        draw, dim, round(shard["alpha"] * dim), shard["replicates"], seed_number(seed)
    )
    predicted = {str(other.length): transfer_error(trained, other) for other in others}
    frame = paired({"sharpness": tau}, predicted, measured)
    frame["length"] = frame["quantity"].astype(int)
    frame["quantity"] = "test_error"
    frame["oracle"] = [
        float(oracle_error(other, "attention" if tau > 0 else "pooled", replicates=2))
        for other in others
    ]
    return frame


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """Error against the length of the test bags, one line for each sharpness."""
    series = []
    for tau in in_order(curves["sharpness"]):
        part = where(curves, sharpness=tau)
        name = f"attention, sharpness {tau:g}" if tau else "mean pooling"
        series.append(Series(part["length"], part["predicted"], "line", name, str(tau)))
        series.append(
            Series(part["length"], part["measured"], "points", None, str(tau), part["stderr"])
        )
    best = where(curves, sharpness=max(config["sharpnesses"]))
    series.append(
        Series(best["length"], best["oracle"], "dotted", "attention oracle at that length", "o")
    )
    return FigureSpec(
        f"Trained on bags of {config['train_length']}, tested on other lengths",
        (
            Panel(
                "test error",
                "tokens in a test bag",
                "test error",
                tuple(series),
                y_scale="linear",
                y_limits=(0.0, 0.52),
            ),
        ),
        columns=1,
        caption=caption(
            f"Strength {config['strength']:g}, alpha {config['alpha']:g}, query cosine "
            f"{config['cosine']:g}; query, readout and bias stay as trained. Lines: exact limit; "
            f"points: d = {config['dim']}, {config['replicates']} replicates.",
            1,
        ),
    )


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured error by length and sharpness."""
    rows = []
    for length in in_order(curves["length"]):
        row: dict[str, object] = {"length": length}
        for tau in in_order(curves["sharpness"]):
            cell = where(curves, length=length, sharpness=tau).iloc[0]
            row[f"tau {tau:g}"] = cell["predicted"]
            row[f"tau {tau:g} measured"] = cell["measured"]
            row[f"tau {tau:g} +-"] = cell["stderr"]
        row["oracle"] = where(curves, length=length)["oracle"].iloc[-1]
        rows.append(row)
    return pd.DataFrame(rows)


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """Agreement of theory and simulation."""
    return [worst(curves)]


EXPERIMENT = Experiment(
    name="sparse-length",
    title="Sparse tokens: trained at one length, tested at another",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
    remarks=remarks,
)
