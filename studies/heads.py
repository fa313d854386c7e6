"""All heads of MiniLM: exact law and delta method against measurement."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.models.captures import Capture
from attnlimit.models.curves import predict_capture
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.bert import SETTINGS, EveryHead
from attnlimit.reproduce.compare import agreement, groups, where
from attnlimit.reproduce.documents import predicted_and_measured
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import LINEAR, against, panel

STATISTICS = {"pointwise": "output of a query", "mean": "mean output"}


class Heads(EveryHead):
    """The error of each head, of single outputs and of their mean."""

    name = "heads"
    title = "All heads of MiniLM on a 512-token article: predicted error against measured"

    def config(self, paper: bool) -> Config:
        return SETTINGS | {
            "pointwise_n": [16, 64, 256],
            "mean_n": [32, 128, 384],
            "pointwise_replicates": 2000 if paper else 200,
            "mean_replicates": 8000 if paper else 2000,
        }

    def measure(self, capture: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        parts, place = [], shard["place"]
        for name in STATISTICS:
            n, draws = shard[f"{name}_n"], shard[f"{name}_replicates"]
            part = predicted_and_measured(capture, name, n, draws, seed, **place)
            part = pd.DataFrame({"statistic": name, "n": n}).join(part)
            if name == "mean":
                delta = predict_capture(capture, name, n, method="delta", **place)
                part = part.assign(delta=delta.root, reliable=delta.diagnostics.reliable)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        curves = super().combine(config, rows)
        return curves.assign(
            reliable=curves["reliable"].fillna(False).astype(bool),
            gap=curves["predicted"] / curves["measured"] - 1,
            delta_error=curves["delta"] / curves["measured"] - 1,
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (statistic, n), part in groups(curves, "statistic", "n"):
            worst = part.iloc[int(np.argmax(part["gap"].abs()))]
            row = {
                "statistic": statistic,
                "n": n,
                "median |gap|": part["gap"].abs().median(),
                "worst |gap|": abs(worst["gap"]),
                "worst head": f"{worst['layer']:.0f}, {worst['head']:.0f}",
                "median noise": (part["stderr"] / part["measured"]).median(),
            }
            if statistic == "mean":
                trusted, other = where(part, reliable=True), where(part, reliable=False)
                row["delta reliable in"] = f"{len(trusted)} of {len(part)} heads"
                row["worst delta there"] = trusted["delta_error"].abs().max()
                row["worst delta elsewhere"] = other["delta_error"].abs().max()
            rows.append(row)
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            agreement(where(curves, statistic=key), name.capitalize())
            for key, name in STATISTICS.items()
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for statistic, name in STATISTICS.items():
            here = where(curves, statistic=statistic)
            series = against(here, "n", {n: f"n = {n}" for n in here["n"]})
            title = f"Error of the {name}, each of {len(here) // here['n'].nunique()} heads"
            panels.append(panel(title, series, "measured", "predicted root mean square error"))
        dots = [Series([0.0, 3.0], [0, 0], "dotted", group=REFERENCE)]
        for flag, label in ((True, "flag: reliable"), (False, "flag: not reliable")):
            some = where(curves, statistic="mean", reliable=flag)
            shown = some["horizon"].clip(upper=3)
            dots.append(Series(shown, some["delta_error"], "points", label, label))
        title, x = "Delta method for the mean output, all n", "horizon H (3 and beyond at 3)"
        panels.append(panel(title, dots, "predicted / measured - 1", x, **LINEAR))
        return FigureSpec(self.title, panels, 3, self.about(config))


EXPERIMENT = Heads()
