"""Errors of classifiers that know the signal against its strength, and the Bayes floor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.sparse.known_signal import DRAWN, RULES, drawn_error
from attnlimit.reproduce.sparse.rows import shared, side_by_side, task_of
from attnlimit.sparse import bayes_error, oracle_error


class KnownSignal(Experiment):
    """One task at several strengths; the rules are applied to `draws` bags of each class."""

    name = "sparse-oracle"
    title = "Sparse tokens: errors with the signal known, against its strength"

    def config(self, paper: bool) -> Config:
        return {
            "length": 10,
            "signals": 1,
            "prior": 0.5,
            "strengths": np.linspace(0.5, 7, 14 if paper else 7).tolist(),
            "draws": 200_000 if paper else 20_000,
        }

    def shards(self, config: Config) -> list[Shard]:
        base = shared(config, "strengths")
        return [{**base, "strength": strength} for strength in config["strengths"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Each rule's error, and the one it makes on drawn bags."""
        task, rng = task_of(shard), np.random.default_rng(seed)
        rows = []
        for rule in DRAWN:
            found = bayes_error(task) if rule == "bayes" else oracle_error(task, rule)
            row = {"strength": task.strength, "quantity": rule, "predicted": found.value}
            row |= drawn_error(task, rule, shard["draws"], rng)
            row |= {"numerical_error": found.numerical_error, "method": found.method}
            rows.append(row | {"sharpness": found.details.get("sharpness", np.nan)})
        return pd.DataFrame(rows)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        # The best is dashed: attention is so close that its line would be hidden.
        series = [
            replace(one, style="dashed") if one.label == RULES["bayes"] else one
            for one in pairs(curves, "quantity", "strength", RULES)
        ]
        only = panel("error against strength", series, "error", "signal strength", x_scale="linear")
        caption = (
            f"L = {config['length']}, R = {config['signals']}, prior {config['prior']:g}. Lines: "
            f"exact; points: {config['draws']} drawn bags of each class."
        )
        return FigureSpec("When the signal is known", (only,), columns=1, caption=caption)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        table = side_by_side(curves, "strength").set_index("strength")
        for rule, part in groups(curves, "quantity"):
            indexed = part.set_index("strength")
            table[f"{rule} numerical error"] = indexed["numerical_error"]
            if rule == "attention":
                table["attention sharpness"] = indexed["sharpness"]
        return table.reset_index().rename(columns=lambda name: name.replace("pooled", "linear"))


EXPERIMENT = KnownSignal()
