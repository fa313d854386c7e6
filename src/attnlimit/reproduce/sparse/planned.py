"""Is the plan right? Estimate real bags from a pilot, predict, train, and compare the errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.sparse.rows import caption, in_order, keep, where
from attnlimit.sparse.bags.plan import measure_plan, plan_bags
from attnlimit.sparse.bags.source import BagSource

POOLINGS = ("mean pooling", "attention")


def planned(
    name: str,
    title: str,
    config: Callable[[bool], Config],
    source: Callable[[Shard], BagSource],
    *,
    signal: str,
    heading: str,
) -> Experiment:
    """Return the experiment that plans and trains on the bags of `source`.

    `config` lists under `signal` + "s" what plays the signal, one shard each; `source` gives the
    bags of a shard, where it is under `signal`. The rest of the configuration is pilot, budgets,
    max_dim, replicates, test_bags, and what `source` needs.
    """

    def shards(config: Config) -> list[Shard]:
        rest = {k: v for k, v in config.items() if k not in (f"{signal}s", "seed")}
        return [{**rest, signal: value} for value in config[f"{signal}s"]]

    def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        bags = source(shard)
        rng = np.random.default_rng(seed)
        plan = plan_bags(bags.draw(shard["pilot"], rng), shard["budgets"], max_dim=shard["max_dim"])
        frame = measure_plan(
            plan,
            bags.draw,
            bags.draw_tests(shard["test_bags"], rng),
            replicates=shard["replicates"],
            seed=int(seed.generate_state(1)[0]),
        )
        failed = [check.assumption for check in plan.estimate.checks if not check.holds]
        held_out = plan.estimate.checks[-1]
        return frame.assign(
            signal=shard[signal],
            dim=plan.estimate.dim,
            strength=plan.estimate.task.strength,
            signal_fraction=plan.estimate.signal_fraction,
            pilot_expected=held_out.expected,
            pilot_found=held_out.found,
            failed="; ".join(failed),
        ).rename(columns={"signal": signal})

    def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
        values = in_order(curves[signal])
        panels = [
            _panel(where(curves, test=test, **{signal: value}), f"{signal} {value}, {test}")
            for test in in_order(curves["test"])
            for value in values
        ]
        return FigureSpec(
            heading,
            tuple(panels),
            columns=len(values),
            caption=caption(
                f"Lines: predicted from a pilot of {config['pilot']} bags. Points: trained on "
                f"fresh bags, {config['replicates']} replicates; bars are standard errors.",
                len(values),
            ),
        )

    def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return curves[[signal, "test", "bags", "pooling", "predicted", "measured", "stderr"]]

    def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            _remark(where(curves, **{signal: value}), f"{signal} {value}")
            for value in in_order(curves[signal])
        ]

    return Experiment(name, title, config, shards, compute, keep, figure, table, remarks)


def _panel(part: pd.DataFrame, title: str) -> Panel:
    series = []
    for pooling in POOLINGS:
        one = where(part, pooling=pooling)
        series.append(Series(one["bags"], one["predicted"], "line", pooling, pooling))
        series.append(Series(one["bags"], one["measured"], "points", None, pooling, one["stderr"]))
    return Panel(
        title,
        "labelled bags",
        "test error",
        tuple(series),
        y_scale="linear",
        y_limits=(0.0, 0.5),
    )


def _remark(part: pd.DataFrame, name: str) -> str:
    """What the predictions were worth, and which assumptions the bags break."""
    ratio = part["measured"] / part["predicted"]
    worth = []
    for test in in_order(part["test"]):
        pooled, attended = (
            ratio[(part["pooling"] == pooling) & (part["test"] == test)] for pooling in POOLINGS
        )
        worth.append(
            f"on {test} {pooled.min():.2f} to {pooled.max():.2f} for mean pooling, "
            f"{attended.min():.2f} to {attended.max():.2f} for attention"
        )
    first = part.iloc[0]
    return (
        f"{name}: estimated strength {first['strength']:.2f} in d = {first['dim']}. Measured over "
        f"predicted {'; '.join(worth)}. Held-out pilot error {first['pilot_found']:.3f}, model "
        f"{first['pilot_expected']:.3f}. Assumptions that fail: {first['failed'] or 'none'}."
    )
