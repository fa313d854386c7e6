"""The planner on real data: bags of handwritten digits, predicted and then trained."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.experiments.experiment import Config, Experiment, Shard
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.sparse.bag_plan import measure_plan, plan_bags
from attnlimit.sparse.digits import DigitBags
from attnlimit.sparse.experiments.rows import caption, in_order, keep, where


def config(paper: bool) -> Config:
    """Three digits as the rare signal, one in a bag of ten."""
    return {
        "digits": [0, 6, 9],
        "length": 10,
        "signals": 1,
        "pilot": 400,
        "budgets": [50, 100, 200, 400, 800, 1600],
        "replicates": 40 if paper else 20,
        "test_bags": 4000,
    }


def shards(config: Config) -> list[Shard]:
    """One for each digit."""
    rest = {k: v for k, v in config.items() if k not in ("digits", "seed")}
    return [{**rest, "digit": digit} for digit in config["digits"]]


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Estimate from a pilot, predict, then train on fresh bags of the same images."""
    source = DigitBags(shard["digit"], shard["length"], shard["signals"])
    rng = np.random.default_rng(seed)
    plan = plan_bags(source.draw(shard["pilot"], rng), shard["budgets"])
    frame = measure_plan(
        plan,
        source.draw,
        source.draw(shard["test_bags"], rng, "test"),
        replicates=shard["replicates"],
        seed=int(seed.generate_state(1)[0]),
    )
    failed = [check.assumption for check in plan.estimate.checks if not check.holds]
    return frame.assign(
        digit=shard["digit"],
        dim=plan.estimate.dim,
        strength=plan.estimate.task.strength,
        signal_fraction=plan.estimate.signal_fraction,
        failed="; ".join(failed),
    )


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """Predicted lines and trained points, a panel for each digit."""
    panels = []
    for digit in in_order(curves["digit"]):
        series = []
        for pooling in ("mean pooling", "attention"):
            part = where(curves, digit=digit, pooling=pooling)
            series.append(Series(part["bags"], part["predicted"], "line", pooling, pooling))
            series.append(
                Series(part["bags"], part["measured"], "points", None, pooling, part["stderr"])
            )
        first = where(curves, digit=digit).iloc[0]
        panels.append(
            Panel(
                f"digit {digit}: estimated strength {first['strength']:.1f}, d = {first['dim']}",
                "labelled bags",
                "test error",
                tuple(series),
                y_scale="linear",
                y_limits=(0.0, 0.5),
            )
        )
    return FigureSpec(
        "Bags of ten handwritten digits, one of them the signal",
        tuple(panels),
        columns=3,
        caption=caption(
            f"Lines: predicted from a pilot of {config['pilot']} bags. Points: trained on fresh "
            f"bags, tested on images never seen, {config['replicates']} replicates.",
            3,
        ),
    )


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured errors."""
    columns = ["digit", "bags", "pooling", "predicted", "measured", "stderr"]
    return curves[columns]


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """Which assumptions the images break, and what the predictions were worth."""
    lines = []
    for digit in in_order(curves["digit"]):
        part = where(curves, digit=digit)
        ratio = part["measured"] / part["predicted"]
        pooled, attended = (ratio[part["pooling"] == p] for p in ("mean pooling", "attention"))
        failed = part["failed"].iloc[0] or "none"
        lines.append(
            f"digit {digit}: measured over predicted {pooled.min():.2f} to {pooled.max():.2f} for "
            f"mean pooling, {attended.min():.1f} to {attended.max():.1f} for attention; "
            f"assumptions that fail: {failed}."
        )
    return lines


EXPERIMENT = Experiment(
    name="sparse-digits",
    title="Sparse tokens on real data: bags of handwritten digits, planned and then trained",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
    remarks=remarks,
)
