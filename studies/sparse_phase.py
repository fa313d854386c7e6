"""The best classifier for each strength and number of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, FigureSpec, Panel, Series
from attnlimit.reproduce.compare import groups, where
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import against, marks, panel
from attnlimit.reproduce.sparse_rows import (
    NAMES,
    at_size,
    paired,
    shared,
    side_by_side,
    sizes,
    task_of,
)
from attnlimit.sparse.trained_readout import readout
from attnlimit.sparse.training import simulate_protocol, simulate_readout
from bag_split import best_split

HOPELESS = 0.45
"""Least error above which no classifier is the best."""


class BestClassifier(Experiment):
    """A grid of strengths and sample sizes; `checked` points are trained too, unless `dim` is 0."""

    name = "sparse-phase"
    title = "Sparse tokens: the best classifier, by strength and number of bags"
    minutes = 2
    settings = {
        "length": 10,
        "signals": 1,
        "prior": 0.5,
        "loss": "logistic",
        "ridge": 0.1,
        "strengths": np.linspace(0.5, 6, 8).tolist(),
        "alphas": np.geomspace(0.5, 64, 8).tolist(),
        "checked": [[2.0, 4.0], [3.0, 2.0], [3.0, 8.0], [4.0, 4.0], [5.0, 2.0], [5.0, 8.0]],
        "dim": 150,
        "replicates": 8,
    }
    paper_settings = {
        "strengths": np.linspace(0.5, 6, 12).tolist(),
        "alphas": np.geomspace(0.5, 64, 12).tolist(),
        "dim": 500,
    }

    def shards(self, config: Config) -> list[Shard]:
        base, alphas = shared(config, "strengths", "alphas", "checked"), config["alphas"]
        lines = [{**base, "strength": s, "alphas": alphas, "dim": 0} for s in config["strengths"]]
        points = [{**base, "strength": s, "alphas": [a]} for s, a in config["checked"]]
        return lines + points if config["dim"] else lines

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Error of each classifier at each alpha, the query's bags counted in."""
        task, dim, many = task_of(shard), shard["dim"], sizes(shard, seed)
        how: dict[str, Any] = {"loss": shard["loss"], "ridge": shard["ridge"]}
        drawn, frames = None, []
        for alpha in shard["alphas"]:
            split = best_split(task, alpha, dim=dim or None, **how)
            steps = {name: getattr(split.alignment, name) for name in ("lr_w", "lr_b", "lr_q")}
            if dim:
                drawn = simulate_protocol(task, split.alpha0, split.alpha1, **steps, **how, **many)
            labels = {"strength": task.strength, "alpha": alpha, "model": "attention"}
            labels["split"] = split.fraction
            frames.append(paired(labels, {"test_error": split.test_error}, drawn))
            for model in ("pooled", "vectorized"):
                predicted = {"test_error": readout(task, alpha, model, **how).test_error}
                if dim:
                    drawn = simulate_readout(task, alpha, model, **how, **many)
                labels |= {"model": model, "split": np.nan}
                frames.append(paired(labels, predicted, drawn))
        return pd.concat(frames)

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return at_size(curves, config["dim"], config["replicates"])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        best = winners(curves)
        names = {key: f"{name} is best" for key, name in NAMES.items()}
        names[REFERENCE] = f"none (error above {HOPELESS:.0%})"
        width = 0.6 * float(np.diff(config["strengths"]).min(initial=1.0))
        by = best["winner"].mask(best["least_error"] > HOPELESS, REFERENCE)
        series = [
            marks(part, "strength", "alpha", names[key], key, width=width)
            for key, part in best.groupby(by)
        ]
        lines = []
        alphas = sorted(config["alphas"])
        few, many = alphas[len(alphas) // 4], alphas[min(len(alphas) // 2 + 1, len(alphas) - 1)]
        for alpha, style in ((few, "dashed"), (many, "line")):
            for model, part in groups(where(_grid(curves), alpha=alpha), "model"):
                label = f"{NAMES[model]}, alpha {alpha:.3g}"
                lines.append(Series(part["strength"], part["predicted"], style, label, model))
        axes = {"x": "signal strength", "x_scale": "linear"}
        limits = 0.6 * alphas[0], 8 * alphas[-1]
        bags = "labelled bags per dimension, alpha"
        return FigureSpec(
            "The best classifier",
            (
                panel("least test error", series, bags, **axes, y_limits=limits),
                panel("test error", lines, "test error", **axes),
                *self._trained(config, curves),
            ),
            caption=(
                f"L = {config['length']}, R = {config['signals']}, ridge {config['ridge']:g}; "
                "attention uses part of the same bags for its query, split and sharpness chosen "
                "best."
            ),
        )

    def _trained(self, config: Config, curves: pd.DataFrame) -> list[Panel]:
        """Trained classifiers beside their predictions, if any were."""
        if not config["dim"]:
            return []
        rows = curves[curves["measured"].notna()]
        title = f"trained at {len(config['checked'])} places, d = {config['dim']}"
        return [panel(title, against(rows, "model", NAMES), "measured", "predicted")]

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        keys = ["strength", "alpha"]
        table = side_by_side(curves.assign(quantity=curves["model"]), *keys)
        share = where(curves, model="attention").drop_duplicates(keys).set_index(keys)["split"]
        best = table[list(NAMES)].idxmin(axis="columns")
        return table.assign(best=best).join(share.rename("query's share"), on=keys)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        shares = winners(curves)["winner"].value_counts(normalize=True)
        text = ", ".join(f"{NAMES[str(model)]} {share:.0%}" for model, share in shares.items())
        return [*super().remarks(config, curves), f"least predicted error on the grid: {text}."]


def _grid(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[curves["measured"].isna()]


def winners(curves: pd.DataFrame) -> pd.DataFrame:
    """The classifier of least predicted error at each grid point, and its error."""
    wide = _grid(curves).pivot(index=["strength", "alpha"], columns="model", values="predicted")
    best = {"winner": wide.idxmin(axis="columns"), "least_error": wide.min(axis="columns")}
    return pd.DataFrame(best).reset_index()


EXPERIMENT = BestClassifier()
