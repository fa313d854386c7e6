"""Attention trained on bags of one length and tested on others.

attnlimit reproduce studies/sparse_length.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.compare import groups, where
from attnlimit.reproduce.experiment import STC, Config, Experiment, Shard
from attnlimit.reproduce.panels import pair, panel
from attnlimit.reproduce.sparse_rows import paired, shared, side_by_side, sizes
from attnlimit.sparse.oracle import oracle_error
from attnlimit.sparse.quadrature import feature_points
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import FINE, Readout, readout
from attnlimit.sparse.training import (
    exact_test_error,
    fit_readout,
    pooled_bags,
    replicate,
    unit_query,
)


def transfer_error(trained: Readout, other: SparseTask) -> float:
    """Error of a trained readout on bags of another task, query, readout and bias as they were."""
    points = feature_points(other, trained.model, trained.cosine, trained.sharpness, FINE)
    return points.error(*trained.weights, trained.noise_scale)


class OtherLengths(Experiment):
    """Query, readout and bias stay as trained; a sharpness of 0 is mean pooling."""

    name = "sparse-length"
    title = "Sparse tokens: trained at one length, tested at another"
    paper = STC
    minutes = 1
    settings = {
        "task": {"length": 10, "signals": 1, "strength": 5.0, "prior": 0.5},
        "alpha": 4.0,
        "ridge": 1e-2,
        "cosine": 0.95,
        "sharpnesses": [0.0, 1.0, 2.0, 4.0],
        "lengths": [2, 5, 10, 20, 40, 80, 160, 320, 640],
        "dim": 300,
        "replicates": 8,
    }
    paper_settings = {"dim": 1000}

    def shards(self, config: Config) -> list[Shard]:
        rest = shared(config, "sharpnesses")
        return [{**rest, "sharpness": tau} for tau in config["sharpnesses"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Error at every length of one readout, trained on drawn bags and predicted."""
        task = SparseTask(**shard["task"])
        dim, bags, ridge = shard["dim"], round(shard["alpha"] * shard["dim"]), shard["ridge"]
        setting: dict[str, Any] = {"cosine": shard["cosine"], "sharpness": shard["sharpness"]}
        model = "attention" if shard["sharpness"] > 0 else "pooled"
        others = {str(n): replace(task, length=n) for n in shard["lengths"]}
        query = unit_query(task, dim, shard["cosine"])
        trained = readout(task, shard["alpha"], model, ridge=ridge, **setting)

        def draw(rng: np.random.Generator) -> dict[str, float]:
            pooled = pooled_bags(task.batches(bags, dim, rng), model, query, shard["sharpness"])
            fitted = fit_readout(*pooled, ridge=ridge)
            return {
                name: exact_test_error(other, fitted, model, query, rng=rng, **setting)
                for name, other in others.items()
            }

        drawn = replicate(draw, samples=bags, **sizes(shard, seed))
        predicted = {name: transfer_error(trained, other) for name, other in others.items()}
        frame = paired({"sharpness": shard["sharpness"]}, predicted, drawn)
        floors = [oracle_error(other, model, replicates=2).value for other in others.values()]
        return frame.assign(
            length=frame["quantity"].astype(int), quantity="test_error", oracle=floors
        )

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        series = []
        for tau, part in groups(curves, "sharpness"):
            name = f"attention, sharpness {tau:g}" if tau else "mean pooling"
            series += pair(part, "length", name, str(tau))
        best = where(curves, sharpness=max(config["sharpnesses"]))
        floor = "attention oracle at that length"
        series.append(Series(best["length"], best["oracle"], "dotted", floor, "oracle"))
        axes: dict[str, Any] = {"y_scale": "linear", "y_limits": (0.0, 0.52)}
        only = panel("test error", series, "test error", "tokens in a test bag", **axes)
        caption = (
            f"Strength {config['task']['strength']:g}, alpha {config['alpha']:g}, query cosine "
            f"{config['cosine']:g}; query, readout and bias stay as trained. Lines: exact limit; "
            f"points: d = {config['dim']}, {config['replicates']} replicates."
        )
        title = f"Trained on bags of {config['task']['length']}, tested on other lengths"
        return FigureSpec(title, (only,), columns=1, caption=caption)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        named = curves.assign(quantity=curves["sharpness"].map(lambda tau: f"tau {tau:g}"))
        floor = curves.groupby("length")["oracle"].last()
        return side_by_side(named, "length").join(floor, on="length")


EXPERIMENT = OtherLengths()
