"""Plans for real bags: predicted from a third of them, measured with the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.bags.data import Bags
from attnlimit.bags.pilot import (
    affordable,
    cross_validate,
    sharing_groups,
    stratified_folds,
)
from attnlimit.bags.planner import plan as plan_bags
from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.compare import groups, where
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.reproduce.sparse_rows import shared
from bag_sources import FILES, benchmark_bags, digit_bags

FACTOR = 1.3
ENOUGH = 90
"""Bags from which on a benchmark counts: fewer leave too few in a third."""
SIMPLE = ("mean pooling", "attention", "joint attention")
"""What the recommended pooling is compared with."""


def benchmark(name: str, drawn: int, rng: np.random.Generator) -> Bags:
    """Return all bags of a data set; at most `drawn` of digits and documents, sharing nothing."""
    if name == "digits":
        return digit_bags(9, length=5).draw_apart(drawn, rng)
    if name == "documents":
        from document_bags import document_bags

        return document_bags("Amphibian").draw_apart(drawn, rng)
    return benchmark_bags(name)


class Benchmarks(Experiment):
    """Ten data sets, each cut once: a third is the pilot, the rest is cross-validated."""

    name = "sparse-benchmarks"
    title = "Plans for real bags: predicted from a third of the bags, measured with the others"

    def config(self, paper: bool) -> Config:
        return {"sets": [*FILES, "digits", "documents"], "drawn": 600, "cuts": 3 if paper else 1}

    def shards(self, config: Config) -> list[Shard]:
        rest = shared(config, "sets", "cuts")
        return [
            {**rest, "set": name, "cut": cut}
            for name in config["sets"]
            for cut in range(config["cuts"])
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Predict every pooling up to the size that the folds of the rest leave to train on."""
        rng = np.random.default_rng(seed)
        bags = benchmark(shard["set"], shard["drawn"], rng)
        third = stratified_folds(bags.signs, 3, rng, sharing_groups(bags, 3))
        pilot, rest = (bags.subset(np.flatnonzero(part)) for part in (third == 0, third > 0))
        effort = affordable(rest)
        trained = len(rest) - -(-len(rest) // effort.folds)
        plan = plan_bags(pilot, [trained])
        result = cross_validate(rest, plan.estimators, effort, fractions=(1.0,), seed=rng)
        wrong = dict(zip(result.poolings, result.wrong[:, -1], strict=True))
        best = min(SIMPLE, key=lambda name: float(wrong[name].mean()))
        same = {"set": shard["set"], "cut": shard["cut"], "bags": len(bags), "pilot": len(pilot)}
        sizes = [*plan.pilot.sizes, *_between(plan.pilot.sizes[-1], trained), trained]
        frames = []
        for place, name in enumerate(result.poolings):
            excess = wrong[name] - wrong[best]
            at = {
                "trained_on": sizes,
                "pooling": name,
                "recommended": name == plan.recommended,
            }
            frame = pd.DataFrame(same | at)
            many, last = len(plan.pilot.sizes), len(frame) - 1
            predicted = np.array([plan.predicted(name, size) for size in sizes]).T
            frame = frame.assign(low=predicted[0], predicted=predicted[1], high=predicted[2])
            frame["theory_alone"] = [plan.theory(name, size) for size in sizes]
            frame["tested_on"] = ["pilot"] * many + [""] * (last - many) + ["rest"]
            for column in ("error", "stderr"):
                seen, later = (getattr(entry, column)[place] for entry in (plan.pilot, result))
                frame[column] = [*seen, *[np.nan] * (last - many), later[-1]]
            frame["excess"], frame["excess_stderr"] = np.nan, np.nan
            frame.loc[last, "excess"] = float(excess.mean())
            noise = float(excess.var()) * (1 + result.overlap) / len(rest)
            frame.loc[last, "excess_stderr"] = np.sqrt(noise)
            frames.append(frame.rename(columns={"error": "measured"}))
        return pd.concat(frames, ignore_index=True)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for (name, cut), rows in groups(curves, "set", "cut"):
            series: list[Series] = []
            shown = rows["recommended"] | (rows["pooling"] == "mean pooling")
            for pooling, part in groups(rows[shown], "pooling"):
                line = part.sort_values("trained_on")
                x, middle, low, high = (
                    line[name] for name in ("trained_on", "predicted", "low", "high")
                )
                seen = where(part, tested_on="pilot")
                last = where(part, tested_on="rest")
                if line["recommended"].any():
                    band = Series(x, middle, "band", None, pooling, lower=low, upper=high)
                    series.append(band)
                series += [
                    Series(x, line["predicted"], "line", pooling, pooling),
                    points(pd.concat([seen, last]), "trained_on", group=pooling),
                ]
            title = name if config["cuts"] == 1 else f"{name}, cut {cut + 1}"
            axes: dict[str, Any] = {"x": "labelled bags trained on", "y_scale": "linear"}
            panels.append(panel(title, series, "error on other bags", **axes))
        return FigureSpec(
            "Real bags: predicted from a third, measured with the others",
            tuple(panels),
            columns=5,
            caption=(
                "Lines: predicted from the pilot, a third of the bags; band: 90 % interval of the "
                "recommended pooling. Points: cross-validated on the pilot, and the last one, "
                "which no prediction has seen, on the other bags"
            ),
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        chosen = _chosen(curves)
        columns = "set bags pilot trained_on pooling predicted low high measured stderr excess"
        return chosen[[*columns.split(), "excess_stderr"]].assign(holds=holds(chosen))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """How many predictions hold, and what following the recommendation costs."""
        chosen, every = _chosen(curves), where(curves, tested_on="rest")
        counted = chosen[chosen["bags"] >= ENOUGH]
        worse = counted["excess"] > 2 * counted["excess_stderr"]
        inside = every["measured"].between(every["low"], every["high"])
        ratio = np.log(every["measured"].clip(lower=1e-3) / every["predicted"])
        return [
            f"Of {len(counted)} recommended poolings on data sets of at least {ENOUGH} bags, "
            f"{int(holds(counted).sum())} err as predicted: within a factor {FACTOR} or inside the "
            "90 % interval.",
            f"The recommended pooling is worse than the better of mean pooling and attention by "
            f"more than two standard errors in {int(worse.sum())} of {len(counted)}.",
            f"Over all {len(every)} poolings and data sets, {inside.mean():.0%} of measured "
            f"errors are inside the 90 % interval; measured over predicted is "
            f"{np.exp(ratio.mean()):.2f} in the geometric mean.",
            f"What is recommended errs {counted['excess'].mean():.3f} more than the best, on "
            f"average over sets of at least {ENOUGH} bags; {_always(every)}.",
        ]


def _between(low: int, high: int) -> list[int]:
    """Some sizes between two, evenly spaced in their logarithm."""
    return [int(n) for n in np.unique(np.round(np.geomspace(low, high, 6)))[1:-1]]


def _always(every: pd.DataFrame) -> str:
    """What using one pooling everywhere would cost."""
    counted = every[every["bags"] >= ENOUGH]
    excess = {name: where(counted, pooling=name)["excess"].mean() for name in SIMPLE}
    return ", ".join(f"always {name} {cost:.3f}" for name, cost in excess.items())


def _chosen(curves: pd.DataFrame) -> pd.DataFrame:
    """The recommended pooling of each data set, tested on bags that the plan has not seen."""
    rest = where(curves, tested_on="rest")
    return rest[rest["recommended"]].reset_index(drop=True)


def holds(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether each measured error is near its prediction or inside the interval."""
    ratio = rows["measured"] / rows["predicted"]
    near = ratio.between(1 / FACTOR, FACTOR)
    return near | rows["measured"].between(rows["low"], rows["high"])


EXPERIMENT = Benchmarks()
