"""Is the plan right? Estimate real bags from a pilot, predict, train, and compare the errors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import COMPARED
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.sparse.rows import shared
from attnlimit.sparse import Bags, measure_plan, plan_bags


class Source(Protocol):
    """Where bags come from, to train on and to test with."""

    def draw(self, n: int, rng: np.random.Generator) -> Bags:
        """Draw `n` labelled bags to train on."""

    def draw_tests(self, n: int, rng: np.random.Generator) -> dict[str, Bags]:
        """Draw `n` labelled bags for each test, by its name."""


class PlannedBags(Experiment):
    """Plan and train on the bags of `source`.

    The configuration lists under `signal` + "s" what plays the signal, one shard each, where it is
    under `signal`; the rest is pilot, budgets, max_dim, replicates, test_bags, and what `source`
    needs.
    """

    signal: str
    heading: str

    @abstractmethod
    def source(self, shard: Shard) -> Source:
        """Return the bags of a shard."""

    def shards(self, config: Config) -> list[Shard]:
        many = f"{self.signal}s"
        rest = shared(config, many)
        return [{**rest, self.signal: value} for value in config[many]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Plan from a pilot, then train on fresh bags at every budget."""
        bags = self.source(shard)
        rng = np.random.default_rng(seed)
        plan = plan_bags(bags.draw(shard["pilot"], rng), shard["budgets"], max_dim=shard["max_dim"])
        tests = bags.draw_tests(shard["test_bags"], rng)
        many = {"replicates": shard["replicates"], "seed": int(seed.generate_state(1)[0])}
        frame = measure_plan(plan, bags.draw, tests, **many)
        checks = () if plan.estimate is None else plan.estimate.checks
        frame[self.signal] = shard[self.signal]
        return frame.assign(
            theory_alone=[
                plan.theory(*row) for row in zip(frame["pooling"], frame["bags"], strict=True)
            ],
            recommended=frame["pooling"] == plan.recommended,
            failed="; ".join(check.assumption for check in checks if not check.holds),
        )

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        axes: dict[str, Any] = {"y": "test error", "x": "labelled bags", "y_scale": "linear"}
        axes["y_limits"] = (0.0, 0.5)
        panels = [
            panel(f"{self.signal} {value}, {test}", pairs(part, "pooling", "bags"), **axes)
            for test, rows in groups(curves, "test")
            for value, part in groups(rows, self.signal)
        ]
        columns = curves[self.signal].nunique()
        return FigureSpec(
            self.heading,
            tuple(panels),
            columns=columns,
            caption=(
                f"Lines: predicted from a pilot of {config['pilot']} bags. Points: trained on "
                f"fresh bags, {config['replicates']} replicates."
            ),
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return curves[[self.signal, "test", "bags", "pooling", "low", "high", *COMPARED]]

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """What the plans were worth."""
        return [
            _remark(part, f"{self.signal} {value}") for value, part in groups(curves, self.signal)
        ]


def _remark(part: pd.DataFrame, name: str) -> str:
    """What the predictions were worth, and which assumptions the bags break."""
    worth = []
    for test, rows in groups(part.assign(ratio=part["measured"] / part["predicted"]), "test"):
        inside = rows["measured"].between(rows["low"], rows["high"]).mean()
        ratios = ", ".join(
            f"{found['ratio'].min():.2f} to {found['ratio'].max():.2f} for {pooling}"
            for pooling, found in groups(rows, "pooling")
        )
        worth.append(f"on {test} {ratios} ({inside:.0%} inside the 90 % interval)")
    chosen = part.loc[part["recommended"], "pooling"].iloc[0]
    failed = part["failed"].iloc[0] or "none"
    return (
        f"{name}: {chosen} recommended. Measured over predicted {'; '.join(worth)}. Assumptions "
        f"that fail: {failed}."
    )
