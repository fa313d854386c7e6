"""Gap-counting critical temperature of a head's rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import attnlimit as al
from attnlimit.models.captured import CapturedHead
from attnlimit.models.captures import Capture
from attnlimit.models.profile import score_deviations
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.bert import SETTINGS, EveryHead
from attnlimit.reproduce.compare import agreement
from attnlimit.reproduce.documents import predicted_and_measured
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import panel, points

TELLS = {
    "ratio": "β over its critical value",
    "crowd_ratio": "β over that of crowds",
    "gaussian_ratio": "σ/√(2 log n)",
    "horizon": "horizon",
    "effective_tokens": "effective keys",
    "entropy": "entropy",
}
TOLD = ("effective_tokens", "entropy", "relative")


def head_temperature(head: CapturedHead, few: float) -> dict[str, float]:
    """Medians over a head's queries: beta / beta_c, alone and with a crowd, and what they hear."""
    blocks = []
    for _, scores in head.blocks():
        alone, crowd = (al.critical_temperature(scores, few=count) for count in (1.0, few))
        deviation, edge = score_deviations(scores)
        hears = deviation / edge, 1 / alone.participation, alone.entropy
        blocks.append((alone.ratio, crowd.ratio, *hears))
    names = ("ratio", "crowd_ratio", "gaussian_ratio", "effective_tokens", "entropy")
    values = map(np.concatenate, zip(*blocks, strict=True))
    return {name: float(np.median(value)) for name, value in zip(names, values, strict=True)}


class RowTemperature(EveryHead):
    """Heads by where their queries stand against the critical temperature of their scores."""

    name = "row-temperature"
    title = "Critical temperature of real heads, by counting gaps of scores"

    def config(self, paper: bool) -> Config:
        return SETTINGS | {"n": 32, "few": 4.0, "replicates": 1000 if paper else 100}

    def measure(self, found: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        place = shard["place"]
        head = found[place["layer"], place["head"]]
        n, draws = [shard["n"]], shard["replicates"]
        error = predicted_and_measured(found, "pointwise", n, draws, seed, **place)
        rows = error.assign(**head_temperature(head, shard["few"]))
        spread = float((head.v - head.v.mean(0)).square().sum(1).mean().sqrt())
        return rows.assign(n=shard["n"], relative=rows["measured"] / spread)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Rank correlations over heads, and the largest of their standard errors (Fisher's)."""
        rows = []
        for tells, name in TELLS.items():
            ranks = {
                words: spearmanr(curves[tells], curves[target]).statistic
                for target, words in self._told(config).items()
                if target in TOLD and target != tells
            }
            stderr = 1.03 * (1 - min(map(abs, ranks.values())) ** 2) / (len(curves) - 1) ** 0.5
            row = {"rank correlation over heads": name} | ranks
            rows.append(row | {"stderr, at most": stderr})
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        above = curves["ratio"] > 1
        return [
            f"{int(above.sum())} of {len(curves)} heads have a median β above its critical value; "
            f"their queries hear {curves['effective_tokens'][above].median():.3g} keys, those of "
            f"the others {curves['effective_tokens'][~above].median():.3g} (medians of medians).",
            agreement(curves, f"Error at n = {config['n']}"),
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        targets, panels = self._told(config), []
        for target in ("effective_tokens", "relative"):
            for tells in ("ratio", "gaussian_ratio"):
                shown = points(curves, tells, target, "none", "heads")
                ends = curves[target].min(), curves[target].max()
                result = Series([1.0, 1.0], ends, "dotted", "one", REFERENCE)
                title = f"{targets[target]} against {TELLS[tells]}"
                panels.append(
                    panel(title, [result, shown], targets[target], TELLS[tells] + ", median")
                )
        return FigureSpec(self.title, panels, 2, self.about(config))

    def _told(self, config: Config) -> dict[str, str]:
        return TELLS | {"relative": f"error of {config['n']} keys"}


EXPERIMENT = RowTemperature()
