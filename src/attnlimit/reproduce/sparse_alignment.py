"""Cosine of the query after two gradient steps, against the number of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.compare import SKEWNESS, agreement, groups, where
from attnlimit.reproduce.experiment import STC, Config, Experiment, Shard
from attnlimit.reproduce.panels import pair, panel
from attnlimit.reproduce.sparse_rows import paired, shared, side_by_side, sizes
from attnlimit.sparse.alignment import best_step_sizes, query_alignment
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.training import simulate_alignment

SQUARE = {"task": [8, 2, 3.0, 0.5], "loss": "square"}
SETTINGS = {
    "logistic, L 10, R 1, strength 5": {"task": [10, 1, 5.0, 0.5]},
    "logistic, L 10, R 1, strength 4, prior 0.3": {"task": [10, 1, 4.0, 0.3], "lr_b": 6.0},
    "square, L 8, R 2, strength 3, small step": {**SQUARE, "lr_w": 0.5},
    "square, L 8, R 2, strength 3, step too large": {**SQUARE, "lr_w": 5.0},
}
X_LABEL = "bags per dimension, alpha0 = n0/d"


class QueryAlignment(Experiment):
    """Each of `settings` has a task and options of `query_alignment`; `best` searches for steps.

    `lines` points are predicted beyond the measured ones; with `dim` 0 nothing is drawn.
    """

    name = "sparse-alignment"
    title = "Sparse tokens: cosine of the query after two gradient steps, and the 1 - C/alpha0 law"
    paper = STC
    figure_of_paper = "theorem: two gradient steps"
    minutes = 2
    settings = {
        "settings": SETTINGS,
        "best": False,
        "dim": 400,
        "replicates": 8,
        "alphas": [0.5, 1.0, 2.0, 4.0, 8.0],
        "lines": 60,
    }
    paper_settings = {"dim": 1000, "replicates": 10}

    def shards(self, config: Config) -> list[Shard]:
        common = shared(config, "settings", "alphas", "lines")
        settings = [{"name": k, "setting": v, **common} for k, v in config["settings"].items()]
        points = [
            {**setting, "alphas": [alpha]} for setting in settings for alpha in config["alphas"]
        ]
        grid = np.geomspace(0.25, 64, config["lines"]).tolist()
        return points + [{**setting, "alphas": grid, "dim": 0} for setting in settings if grid]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Cosine and norm, predicted beside measured."""
        options = dict(shard["setting"])
        task, dim, drawn, frames = SparseTask(*options.pop("task")), shard["dim"], None, []
        for alpha0 in shard["alphas"]:
            if shard["best"]:
                loss, beta = options.get("loss", "logistic"), options.get("beta", 1.0)
                chosen = best_step_sizes(task, alpha0, loss, beta=beta, dim=dim or None)
                options |= {"lr_w": chosen.lr_w, "lr_b": chosen.lr_b}
            law = query_alignment(task, alpha0, **options)
            if dim:
                drawn = simulate_alignment(task, alpha0, **options, **sizes(shard, seed))
            labels = {"setting": shard["name"], "alpha0": alpha0}
            names = ("sharpness", "lr_w", "lr_b", "constant")
            labels |= {name: getattr(law, name) for name in names}
            frames.append(paired(labels, {"cosine": law.cosine, "norm": law.norm}, drawn))
        return pd.concat(frames)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        cosines, gaps = [], []
        for name, part in groups(where(curves, quantity="cosine"), "setting"):
            cosines += pair(part, "alpha0", None, name)
            missing = {column: 1 - part[column].abs() for column in ("predicted", "measured")}
            missing[SKEWNESS] = -part[SKEWNESS] * np.sign(part["measured"])
            gaps += pair(part.assign(**missing), "alpha0", name)
            large = part[part["alpha0"] >= 1].sort_values("alpha0")
            law = large["constant"] / large["alpha0"]
            gaps.append(Series(large["alpha0"], law, "dotted", None, name))
        axes: dict[str, Any] = {"y_scale": "linear", "y_limits": (-1.05, 1.05)}
        return FigureSpec(
            "Two gradient steps align the query with the signal",
            (
                panel("cosine with the signal", cosines, "cosine", X_LABEL, **axes),
                panel("distance from perfect", gaps, "1 - |cosine|", X_LABEL),
            ),
            caption=(
                "Lines: exact limit; dotted: C/alpha0; points: two steps taken on drawn bags at "
                f"d = {config['dim']}, {config['replicates']} replicates. A first step that is too "
                "large turns the query away from the signal."
            ),
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        shown = curves[curves["alpha0"].isin(config["alphas"])]
        return side_by_side(shown, "setting", "alpha0", "lr_w", "lr_b", "constant", "sharpness")

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        names = ("cosine", "norm") if config["dim"] else ()
        away = curves[(curves["quantity"] == "cosine") & (curves["predicted"] < 0)]["setting"]
        return [
            *(agreement(where(curves, quantity=name), name) for name in names),
            *(f"{name}: these steps turn the query from the signal." for name in away.unique()),
        ]


EXPERIMENT = QueryAlignment()
