"""The strength that 5 % error takes, against the length: log L for attention, sqrt L for linear."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel
from attnlimit.reproduce.rows import groups, where
from attnlimit.reproduce.sparse.known_signal import DRAWN, RULES, drawn_error
from attnlimit.reproduce.sparse.rows import shared
from attnlimit.sparse import SparseTask, strength_needed

X_LABEL = "tokens in a bag, L"


class Separation(Experiment):
    """Every rule at every length; bags up to `longest_drawn` are drawn, `draws` of each class."""

    name = "sparse-separation"
    title = "Sparse tokens: strength needed for 5 % error against the length, log L against sqrt L"

    def config(self, paper: bool) -> Config:
        return {
            "error": 0.05,
            "signals": 1,
            "prior": 0.5,
            "lengths": [2**k for k in range(4, 21, 1 if paper else 2)],
            "longest_drawn": 2 ** (14 if paper else 12),
            "draws": 200_000 if paper else 20_000,
        }

    def shards(self, config: Config) -> list[Shard]:
        base = shared(config, "lengths", "longest_drawn")
        bags = [
            {**base, "length": length, "draws": base["draws"] * (length <= config["longest_drawn"])}
            for length in config["lengths"]
        ]
        return [{**one, "rule": rule} for one in bags for rule in RULES]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """The strength needed, and the error measured there on drawn bags."""
        rule, length, signals, prior = (shard[k] for k in ("rule", "length", "signals", "prior"))
        strength = strength_needed(shard["error"], length, rule, signals=signals, prior=prior)
        task, rng = SparseTask(length, signals, strength, prior), np.random.default_rng(seed)
        row = {"rule": rule, "length": length, "strength": strength, "quantity": "error"}
        measured = drawn_error(task, rule, shard["draws"], rng)
        return pd.DataFrame([{**row, "predicted": shard["error"], **measured}])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        needed = {rule: part.sort_values("length") for rule, part in groups(curves, "rule")}
        floor = needed["bayes"]["strength"].to_numpy()

        def line(rule: str, style: str = "line") -> Series:
            part = needed[rule]
            return Series(part["length"], part["strength"], style, RULES[rule], rule)

        lengths = needed["bayes"]["length"].to_numpy(dtype=float)
        edge = np.sqrt(2 * np.log(lengths))
        margin = -float(ndtri(config["error"] / config["prior"]))
        law = f"sqrt(2 log L) + {margin:.2f}: its {config['error']:.0%} law"
        excess = [
            Series(lengths, 100 * (needed[rule]["strength"] / floor - 1), "line", RULES[rule], rule)
            for rule in ("attention", "scan")
        ]
        full = (line("bayes"), line("attention", "dashed"), line("pooled"))
        zoom = (
            line("bayes"),
            line("attention", "dashed"),
            Series(lengths, edge, "dotted", "sqrt(2 log L)", REFERENCE),
            Series(lengths, edge + margin, "dashed", law, REFERENCE),
        )
        axes = {"x": X_LABEL, "y_scale": "linear"}
        return FigureSpec(
            f"Signal strength needed for {config['error']:.0%} error",
            (
                panel("all classifiers", full, "strength", X_LABEL),
                panel("the logarithmic ones", zoom, "strength", **axes),
                panel("excess over the Bayes floor", excess, "excess strength, percent", **axes),
            ),
            columns=3,
            caption=(
                f"{config['signals']} signal token(s), prior {config['prior']:g}, the signal's "
                "direction known. Linear classifiers need strength growing like sqrt(L); attention "
                "stays close to the Bayes floor, which grows like sqrt(2 log L)."
            ),
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        strength, measured, stderr = (
            curves.pivot(index="length", columns="rule", values=values)
            for values in ("strength", "measured", "stderr")
        )
        table = strength[list(RULES)].rename_axis(columns=None)
        for rule in DRAWN:
            table[f"{rule} error"], table[f"{rule} stderr"] = measured[rule], stderr[rule]
        table["sqrt(2 log L)"] = np.sqrt(2 * np.log(table.index))
        table = table.rename(columns=lambda name: name.replace("pooled", "linear"))
        return table.reset_index().dropna(axis="columns", how="all")

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """Agreement of drawn bags, and the growth over the range."""
        first, last = (
            where(curves, length=length).set_index("rule")["strength"]
            for length in (curves["length"].min(), curves["length"].max())
        )
        grown = last / first
        return [
            *super().remarks(config, curves),
            f"from L = {curves['length'].min()} to {curves['length'].max()} the strength grows "
            f"{grown['bayes']:.2f} times (Bayes), {grown['attention']:.2f} times (attention), "
            f"{grown['pooled']:.0f} times (linear).",
        ]


EXPERIMENT = Separation()
