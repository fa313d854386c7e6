"""Sparse tokens: errors of the rules that know the signal, against its strength."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import groups
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.reproduce.sparse_known_signal import DRAWN, RULES, as_linear, drawn_error
from attnlimit.reproduce.sparse_rows import shared, side_by_side, task_of
from attnlimit.sparse.oracle import bayes_error, oracle_error


class KnownSignal(Experiment):
    """One task at several strengths; the rules are applied to `draws` bags of each class."""

    name = "sparse-oracle"
    title = "Sparse tokens: errors with the signal known, against its strength"
    minutes = 0.5
    settings = {
        "length": 10,
        "signals": 1,
        "prior": 0.5,
        "strengths": np.linspace(0.5, 7, 7).tolist(),
        "draws": 20_000,
    }
    paper_settings = {"strengths": np.linspace(0.5, 7, 14).tolist(), "draws": 200_000}

    def shards(self, config: Config) -> list[Shard]:
        base = shared(config, "strengths")
        return [{**base, "strength": strength} for strength in config["strengths"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Each rule's error, and the one it makes on drawn bags."""
        task, rng = task_of(shard), np.random.default_rng(seed)
        rows = []
        for rule in DRAWN:
            law = bayes_error(task) if rule == "bayes" else oracle_error(task, rule)
            row = {"strength": task.strength, "quantity": rule, "predicted": law.value}
            row |= drawn_error(task, rule, shard["draws"], rng)
            row |= {"numerical_error": law.numerical_error, "method": law.method}
            rows.append(row | {"sharpness": law.details.get("sharpness", np.nan)})
        return pd.DataFrame(rows)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        # The best is dashed: attention is so close that its line would be hidden.
        series = [
            replace(line, style="dashed") if line.label == RULES["bayes"] else line
            for line in pairs(curves, "quantity", "strength", RULES)
        ]
        only = panel("error against strength", series, "error", "signal strength", x_scale="linear")
        caption = (
            f"L = {config['length']}, R = {config['signals']}, prior {config['prior']:g}. Lines: "
            f"exact; points: {config['draws']} drawn bags of each class."
        )
        return FigureSpec("Errors with a known signal", (only,), columns=1, caption=caption)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        table = side_by_side(curves, "strength").set_index("strength")
        for rule, part in groups(curves, "quantity"):
            table[f"{rule} numerical error"] = part.set_index("strength")["numerical_error"]
            if rule == "attention":
                table["attention sharpness"] = part.set_index("strength")["sharpness"]
        return table.reset_index().rename(columns=as_linear)


EXPERIMENT = KnownSignal()
