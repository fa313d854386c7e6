"""The strength that 5 % error takes, against the length: log L for attention, sqrt L for linear."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.rows import groups, where
from attnlimit.reproduce.sparse.known_signal import DRAWN, RULES, drawn_error
from attnlimit.sparse import SparseTask, strength_needed

X_LABEL = "tokens in a bag, L"


class Separation(Experiment):
    """Every rule at every length; bags up to `longest_drawn` are drawn, `draws` of each class."""

    name = "sparse-separation"
    title = "Sparse tokens: strength needed for 5 % error against the length, log L against sqrt L"

    def config(self, paper: bool) -> Config:
        """Lengths 2^4 to 2^20; rules applied to drawn bags up to 2^12."""
        return {
            "error": 0.05,
            "signals": 1,
            "prior": 0.5,
            "lengths": [2**k for k in range(4, 21, 1 if paper else 2)],
            "longest_drawn": 2 ** (14 if paper else 12),
            "draws": 200_000 if paper else 20_000,
        }

    def shards(self, config: Config) -> list[Shard]:
        """One for each length and rule."""
        base = {name: config[name] for name in ("error", "signals", "prior")}
        drawn = {length: length <= config["longest_drawn"] for length in config["lengths"]}
        return [
            {
                **base,
                "rule": rule,
                "length": length,
                "draws": config["draws"] if drawn[length] and rule in DRAWN else 0,
            }
            for length in config["lengths"]
            for rule in RULES
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """The strength needed, and the error measured there on drawn bags."""
        rule, length, signals, prior = (shard[k] for k in ("rule", "length", "signals", "prior"))
        strength = strength_needed(shard["error"], length, rule, signals=signals, prior=prior)
        measured, stderr = np.nan, np.nan
        if shard["draws"]:
            task, rng = SparseTask(length, signals, strength, prior), np.random.default_rng(seed)
            measured, stderr = drawn_error(task, rule, shard["draws"], rng)
        row = {"rule": rule, "length": length, "strength": strength, "quantity": "error"}
        row |= {"predicted": shard["error"], "measured": measured, "stderr": stderr}
        return pd.DataFrame([row])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        """Strength needed against length on two scales, and in excess of the floor."""
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
            line("attention", "points"),
            Series(lengths, edge, "dotted", "sqrt(2 log L)", "edge"),
            Series(lengths, edge + margin, "dashed", law, "edge"),
        )
        return FigureSpec(
            f"Signal strength needed for {config['error']:.0%} error",
            (
                Panel("all classifiers", X_LABEL, "strength", full),
                Panel("the logarithmic ones", X_LABEL, "strength", zoom, y_scale="linear"),
                Panel(
                    "excess over the Bayes floor",
                    X_LABEL,
                    "excess strength, percent",
                    tuple(excess),
                    y_scale="linear",
                ),
            ),
            columns=3,
            caption=(
                f"{config['signals']} signal token(s), prior {config['prior']:g}, the signal's "
                "direction known. Linear classifiers need strength growing like sqrt(L); attention "
                "stays close to the Bayes floor, which grows like sqrt(2 log L)."
            ),
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Strength by length and rule, and errors measured there."""
        strength, measured, stderr = (
            curves.pivot(index="length", columns="rule", values=values)
            for values in ("strength", "measured", "stderr")
        )
        table = strength[list(RULES)].rename_axis(columns=None)
        for rule in DRAWN:
            table[f"{rule} error"], table[f"{rule} +-"] = measured[rule], stderr[rule]
        table["sqrt(2 log L)"] = np.sqrt(2 * np.log(table.index))
        table = table.rename(columns=lambda name: name.replace("pooled", "linear"))
        return table.reset_index().dropna(axis="columns", how="all")

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """Agreement of drawn bags, and the growth over the range."""
        said = super().remarks(config, curves) if config["draws"] else []
        first, last = (
            where(curves, length=length).set_index("rule")["strength"]
            for length in (curves["length"].min(), curves["length"].max())
        )
        grown = last / first
        return [
            *said,
            f"from L = {curves['length'].min()} to {curves['length'].max()} the strength grows "
            f"{grown['bayes']:.2f} times (Bayes), {grown['attention']:.2f} times (attention), "
            f"{grown['pooled']:.0f} times (linear).",
        ]


EXPERIMENT = Separation()
