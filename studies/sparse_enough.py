"""Instances of real bags: pooled feature and decision, predicted and drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.bags import instances
from attnlimit.bags.data import Bags
from attnlimit.bags.pooling import AttentionPooling
from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import agreement, groups, where, with_uncertainty
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import DRAWN, pairs, panel
from attnlimit.reproduce.sparse_rows import shared
from attnlimit.samplers.spec import parse_sampler
from bag_sources import benchmark_bags, digit_bags

SHOWN = {"feature error": "error of the pooled feature", "decision changed": "decisions changed"}
"""What the table and the figure are about, of all that is predicted and drawn."""


class InstancesEnough(Experiment):
    """Every bag is scored by a pooling that never saw it; `fits` times, with other folds."""

    name = "sparse-enough"
    title = "Instances of real bags that are enough: pooled feature and decision, drawn"

    def config(self, paper: bool) -> Config:
        return {
            "sets": ["ucsb_breast_cancer", "digits"],
            "drawn": 60,
            "length": 30,
            "samplers": ["without-replacement:1", "iid:1", "threshold:1", "top-k:1"],
            "n": [2, 4, 8, 16],
            "draws": 2000,
            "change": 0.01,
            "fits": 5 if paper else 1,
        }

    def shards(self, config: Config) -> list[Shard]:
        rest = shared(config, "sets", "samplers", "fits")
        return [
            {**rest, "set": name, "fit": fit, "sampler": sampler, "stream": fit}
            for name in config["sets"]
            for fit in range(config["fits"])
            for sampler in config["samplers"]
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Fit five times, predict and draw with one sampler."""
        bags = _bags(shard, np.random.default_rng(seed))
        budget = instances(
            bags,
            AttentionPooling(),
            shard["n"],
            samplers=parse_sampler(shard["sampler"]),
            change=shard["change"],
            draws=shard["draws"],
            seed=int(seed.generate_state(1)[0]),
        )
        (smallest,) = budget.enough.values()
        same = {"set": shard["set"], "fit": shard["fit"] + 1}
        return budget.to_frame().assign(**same, enough=smallest)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        axes: dict[str, Any] = {"x": "instances read of a bag", "y_scale": "linear"}
        panels = [
            panel(f"{name}: {SHOWN[what]}", pairs(rows, "sampler", "read"), SHOWN[what], **axes)
            for name, part in groups(where(curves, fit=1), "set")
            for what, rows in groups(part, "quantity")
            if what in SHOWN
        ]
        caption = f"{DRAWN}, {config['draws']} draws of each bag."
        return FigureSpec("How many instances are enough", tuple(panels), caption=caption)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        keys = ["set", "fit", "sampler", "n"]
        table = curves[keys].drop_duplicates().set_index(keys)
        for what in SHOWN:
            rows = where(curves, quantity=what).set_index(keys)
            table[what] = rows["predicted"]
            table[f"{what}, drawn"] = pd.Series(with_uncertainty(rows), rows.index)
        return table.reset_index()

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """How far the laws are from the draws, and how many instances are enough."""
        compared = [
            agreement(rows, f"{name}, {what}")
            for (name, what), rows in groups(curves, "set", "quantity")
            if what in SHOWN
        ]
        return [*compared, *(_answer(config, *part) for part in groups(curves, "set"))]


def _bags(shard: Shard, rng: np.random.Generator) -> Bags:
    """Bags as they are stored, or in another order for each further fit; digits are drawn."""
    if shard["set"] == "digits":
        return digit_bags(9, shard["length"]).draw(shard["drawn"], rng)
    stored = benchmark_bags(shard["set"])
    return stored.subset(rng.permutation(len(stored))) if shard["fit"] else stored


def _answer(config: Config, name: str, rows: pd.DataFrame) -> str:
    values = []
    for sampler, part in groups(rows, "sampler"):
        sizes = part.drop_duplicates("fit")["enough"]
        known = sizes.dropna().astype(int)
        some = f"{known.min()} to {known.max()}" if known.nunique() > 1 else f"{known.max()}"
        values.append(f"{some if len(known) == len(sizes) else 'no n'} ({sampler})")
    return (
        f"{name}: for a change of at most {config['change']:g} of the decisions, "
        f"{', '.join(values)} instances are enough."
    )


EXPERIMENT = InstancesEnough()
