"""Learning curves of the three classifiers, and attention tested at other lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.compare import agreement, groups, where
from attnlimit.reproduce.experiment import STC, Config, Experiment, Shard
from attnlimit.reproduce.panels import pair, pairs, panel
from attnlimit.reproduce.sparse_rows import (
    NAMES,
    at_size,
    paired,
    shared,
    side_by_side,
    sizes,
)
from attnlimit.sparse.alignment import query_alignment
from attnlimit.sparse.oracle import oracle_error
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import learning_curve, readout, transfer_error
from attnlimit.sparse.training import (
    exact_test_error,
    fit_readout,
    pooled_bags,
    replicate,
    simulate_protocol,
    simulate_readout,
    unit_query,
)

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


class OtherLengths(Experiment):
    """Query, readout and bias stay as trained; a sharpness of 0 is mean pooling."""

    name = "sparse-length"
    title = "Sparse tokens: trained at one length, tested at another"
    paper = STC
    figure_of_paper = "experiment: other lengths"
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


CURVES, LENGTHS = LearningCurves(), OtherLengths()
