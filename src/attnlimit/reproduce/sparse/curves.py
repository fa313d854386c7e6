"""Test and training error against the number of bags, for the three classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import agreement
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.reproduce.rows import where
from attnlimit.reproduce.sparse.rows import (
    BAGS,
    NAMES,
    at_size,
    paired,
    shared,
    side_by_side,
    sizes,
)
from attnlimit.sparse import (
    SparseTask,
    learning_curve,
    query_alignment,
    simulate_protocol,
    simulate_readout,
)

QUANTITIES = ("test_error", "train_loss", "train_error", "train_margin")


class LearningCurves(Experiment):
    """The query comes from two steps on alpha0 d other bags, or has the `cosine` that is given.

    `lines` points are predicted beyond the measured ones; with `dim` 0 nothing is drawn.
    """

    name = "sparse-curves"
    title = "Sparse tokens: test and training error against the number of bags, three classifiers"

    def config(self, paper: bool) -> Config:
        return {
            "task": {"length": 10, "signals": 1, "strength": 5.0, "prior": 0.5},
            "models": list(NAMES),
            "loss": "logistic",
            "ridge": 1e-5,
            "alpha0": 2.0,
            "cosine": None,
            "sharpness": 1.0,
            "dim": 1000 if paper else 200,
            "replicates": 4 if paper else 8,
            "alphas": [0.5, 1.0, 2.0, 3.0, 4.0] if paper else [0.5, 1.0, 2.0, 4.0, 6.0, 8.0],
            "lines": 20,
        }

    def shards(self, config: Config) -> list[Shard]:
        common = shared(config, "models", "alphas", "lines")
        alphas = grid = config["alphas"]
        if config["lines"]:
            grid = np.geomspace(min(alphas) / 2, 2 * max(alphas), config["lines"]).tolist()
        models = config["models"]
        lines = [{**common, "model": m, "alphas": grid, "dim": 0} for m in models]
        points = [{**common, "model": m, "alphas": [a]} for m in models for a in alphas]
        return lines + points if config["dim"] else lines

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Predicted errors along alpha, with what training on drawn bags gives."""
        task, model = SparseTask(**shard["task"]), shard["model"]
        how: dict[str, Any] = {"loss": shard["loss"], "ridge": shard["ridge"]}
        query = {"cosine": shard["cosine"], "sharpness": shard["sharpness"]}
        lr_q = None
        if shard["cosine"] is None:
            steps = query_alignment(task, shard["alpha0"], shard["loss"])
            query["cosine"], lr_q = steps.cosine, shard["sharpness"] / steps.sharpness
        drawn, frames, many = None, [], sizes(shard, seed)
        for found in learning_curve(task, shard["alphas"], model, **query, **how):
            if shard["dim"] and lr_q is not None and model == "attention":
                drawn = simulate_protocol(
                    task, shard["alpha0"], found.alpha, lr_q=lr_q, **how, **many
                )
            elif shard["dim"]:
                drawn = simulate_readout(task, found.alpha, model, **query, **how, **many)
            predicted = {name: getattr(found, name) for name in QUANTITIES}
            frames.append(paired({"model": model, "alpha": found.alpha}, predicted, drawn))
        return pd.concat(frames)

    def weighed(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return at_size(curves, config["dim"], config["replicates"])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for quantity, label in (("test_error", "test error"), ("train_loss", "training loss")):
            rows = where(curves, quantity=quantity)
            positive = quantity == "train_loss" and (rows["predicted"] > 0).all()
            scale = "log" if positive else "linear"
            series = pairs(rows, "model", "alpha", NAMES)
            panels.append(panel(label, series, label, BAGS, y_scale=scale))
        return FigureSpec("What more labelled bags buy", tuple(panels), caption=_caption(config))

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return side_by_side(curves, "model", "alpha")

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """How well theory and simulation agree."""
        if not config["dim"]:
            return []
        return [
            *(agreement(where(curves, quantity=q), q) for q in QUANTITIES[:2]),
            f"Predictions are of the limit of large d; what they miss at d = {config['dim']}, "
            "of the order of 1/d, counts as their own error.",
        ]


def _caption(config: Config) -> str:
    task = SparseTask(**config["task"])
    query = (
        f"two gradient steps on {config['alpha0']:g} d other bags"
        if config["cosine"] is None
        else f"cosine {config['cosine']:g}"
    )
    drawn = (
        f" Points: trained on drawn bags at d = {config['dim']}, {config['replicates']} replicates."
        if config["dim"]
        else ""
    )
    return (
        f"L = {task.length}, R = {task.signals}, strength {task.strength:g}, prior "
        f"{task.prior:g}, {config['loss']} loss, ridge {config['ridge']:g}. Lines: exact limit."
        f"{drawn} Attention's query: {query}, sharpness {config['sharpness']:g}."
    )


EXPERIMENT = LearningCurves()
