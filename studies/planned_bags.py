"""Plans for real bags: estimated from a pilot, then trained and compared."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone

from attnlimit.bags import BagPlan
from attnlimit.bags import plan as plan_bags
from attnlimit.bags.data import Bags, check_bags
from attnlimit.bags.pilot import misses
from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import COMPARED, groups
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.reproduce.sparse_rows import shared


def measure_plan(
    plan: BagPlan,
    draw: Callable[[int, np.random.Generator], Bags],
    test: Bags | Mapping[str, Bags],
    *,
    replicates: int = 10,
    seed: int = 0,
) -> pd.DataFrame:
    """Train every pooling of a plan on new bags, and put errors beside the predictions.

    `draw(n, rng)` gives n labelled training bags; `test` is held out, and may be several sets by
    name. Returns one row for each budget, pooling and test set: test (its name, "test" when there
    is one), bags, pooling, predicted, low, high, measured, stderr.
    """
    tests = test if isinstance(test, Mapping) else {"test": check_bags(test)}
    rows = []
    for budget in plan.budgets:
        errors: dict[tuple[str, str], list[float]] = {}
        for child in np.random.SeedSequence([seed, int(budget)]).spawn(replicates):
            bags = draw(int(budget), np.random.default_rng(child))
            for pooling, estimator in plan.estimators.items():
                for name, wrong in misses(clone(estimator), bags, tests).items():
                    errors.setdefault((name, pooling), []).append(float(wrong.mean()))
        for (name, pooling), values in errors.items():
            low, middle, high = plan.predicted(pooling, float(budget))
            stderr = float(np.std(values, ddof=1) / np.sqrt(len(values)))
            row = {"test": name, "bags": int(budget), "pooling": pooling, "predicted": middle}
            measured = {"measured": float(np.mean(values)), "stderr": stderr}
            rows.append({**row, "low": low, "high": high, **measured})
    return pd.DataFrame(rows)


class Source(Protocol):
    """Where bags come from, to train on and to test with."""

    def draw(self, n: int, rng: np.random.Generator) -> Bags:
        """Draw `n` labelled bags to train on."""

    def draw_tests(self, n: int, rng: np.random.Generator) -> dict[str, Bags]:
        """Draw `n` labelled bags for each test, by its name."""


class PlannedBags(Experiment):
    """Plan and train on the bags of `source`.

    The configuration lists under `signal` + "s" what plays the signal, one shard each, where it is
    under `signal`; the rest is pilot, budgets, replicates, test_bags, and what `source`
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
        plan = plan_bags(bags.draw(shard["pilot"], rng), shard["budgets"])
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
            f"{part['ratio'].min():.2f} to {part['ratio'].max():.2f} for {pooling}"
            for pooling, part in groups(rows, "pooling")
        )
        worth.append(f"on {test} {ratios} ({inside:.0%} inside the 90 % interval)")
    chosen = part.loc[part["recommended"], "pooling"].iloc[0]
    failed = part["failed"].iloc[0] or "none"
    return (
        f"{name}: {chosen} recommended. Measured over predicted {'; '.join(worth)}. Assumptions "
        f"that fail: {failed}."
    )
