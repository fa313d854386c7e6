"""Learning curves of the three classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import agreement, where
from attnlimit.reproduce.experiment import STC, Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.reproduce.sparse_rows import NAMES, at_size, paired, shared, side_by_side, sizes
from attnlimit.sparse.alignment import query_alignment
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import learning_curve
from attnlimit.sparse.training import simulate_protocol, simulate_readout

QUANTITIES = ("test_error", "train_loss", "train_error", "train_margin")


class LearningCurves(Experiment):
    """The query comes from two steps on alpha0 d other bags, or has the `cosine` that is given.

    `lines` points are predicted beyond the measured ones; with `dim` 0 nothing is drawn.
    """

    name = "sparse-curves"
    title = "Sparse tokens: test and training error against the number of bags, three classifiers"
    paper = STC
    figure_of_paper = "theorem: test error and training loss"
    minutes = 2
    settings = {
        "task": {"length": 10, "signals": 1, "strength": 5.0, "prior": 0.5},
        "models": list(NAMES),
        "loss": "logistic",
        "ridge": 1e-5,
        "alpha0": 2.0,
        "cosine": None,
        "sharpness": 1.0,
        "dim": 200,
        "replicates": 8,
        "alphas": [0.5, 1.0, 2.0, 4.0, 6.0, 8.0],
        "lines": 20,
    }
    paper_settings = {"dim": 1000, "replicates": 4, "alphas": [0.5, 1.0, 2.0, 3.0, 4.0]}

    def shards(self, config: Config) -> list[Shard]:
        common, models = shared(config, "models", "alphas", "lines"), config["models"]
        alphas = grid = config["alphas"]
        if config["lines"]:
            grid = np.geomspace(min(alphas) / 2, 2 * max(alphas), config["lines"]).tolist()
        lines = [{**common, "model": m, "alphas": grid, "dim": 0} for m in models]
        points = [{**common, "model": m, "alphas": [a]} for m in models for a in alphas]
        return lines + points if config["dim"] else lines

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Predicted errors along alpha, beside those of training on drawn bags."""
        task, model = SparseTask(**shard["task"]), shard["model"]
        how: dict[str, Any] = {"loss": shard["loss"], "ridge": shard["ridge"]}
        query = {"cosine": shard["cosine"], "sharpness": shard["sharpness"]}
        lr_q = None
        if shard["cosine"] is None:
            steps = query_alignment(task, shard["alpha0"], shard["loss"])
            query["cosine"], lr_q = steps.cosine, shard["sharpness"] / steps.sharpness
        drawn, frames, many = None, [], sizes(shard, seed)
        for law in learning_curve(task, shard["alphas"], model, **query, **how):
            if shard["dim"] and lr_q is not None and model == "attention":
                alpha0, alpha1 = shard["alpha0"], law.alpha
                drawn = simulate_protocol(task, alpha0, alpha1, lr_q=lr_q, **how, **many)
            elif shard["dim"]:
                drawn = simulate_readout(task, law.alpha, model, **query, **how, **many)
            predicted = {name: getattr(law, name) for name in QUANTITIES}
            frames.append(paired({"model": model, "alpha": law.alpha}, predicted, drawn))
        return pd.concat(frames)

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return at_size(curves, config["dim"], config["replicates"])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels, x = [], "bags per dimension, alpha = n/d"
        for quantity, label in (("test_error", "test error"), ("train_loss", "training loss")):
            rows = where(curves, quantity=quantity)
            positive = quantity == "train_loss" and (rows["predicted"] > 0).all()
            series = pairs(rows, "model", "alpha", NAMES)
            scale = "log" if positive else "linear"
            panels.append(panel(label, series, label, x, y_scale=scale))
        return FigureSpec("Errors against labelled bags", panels, caption=_caption(config))

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return side_by_side(curves, "model", "alpha")

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        if not config["dim"]:
            return []
        return [
            *(agreement(where(curves, quantity=name), name) for name in QUANTITIES[:2]),
            f"Predictions are limits of large d; their error at d = {config['dim']}, of the order "
            "of 1/d, counts as their own.",
        ]


def _caption(config: Config) -> str:
    task, drawn = SparseTask(**config["task"]), ""
    query = f"cosine {config['cosine']}"
    if config["cosine"] is None:
        query = f"two gradient steps on {config['alpha0']:g} d other bags"
    if config["dim"]:
        sizes = f"d = {config['dim']}, {config['replicates']} replicates"
        drawn = f" Points: trained on drawn bags at {sizes}."
    return (
        f"L = {task.length}, R = {task.signals}, strength {task.strength:g}, prior "
        f"{task.prior:g}, {config['loss']} loss, ridge {config['ridge']:g}. Lines: exact limit."
        f"{drawn} Attention's query: {query}, sharpness {config['sharpness']:g}."
    )


EXPERIMENT = LearningCurves()
