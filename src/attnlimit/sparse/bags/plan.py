"""Which pooling, and how many labelled bags? Measured on a pilot, and predicted beyond it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlimit.checks import Array, count
from attnlimit.errors import BadInput
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.sparse.bags.advice import Advice, advise
from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.bags.estimate import BagEstimate, estimate
from attnlimit.sparse.bags.forecast import Belief, Forecast, forecast
from attnlimit.sparse.bags.pilot import (
    PilotErrors,
    Progress,
    affordable,
    cross_validate,
    kept_together,
    misses,
)
from attnlimit.sparse.bags.poolings import LAWS, THEORY, best_shrinkage, poolings
from attnlimit.sparse.bags.sentences import recommendation
from attnlimit.sparse.law.learning import LearningLaw, learning_law

GROWTH = (1, 2, 4, 8)
"""Budgets that are considered unless others are asked for, in pilots."""
SHARED = 0.05
"""Part of the instances in more than one bag that may be chance: empty patches, say."""


@dataclass(frozen=True, eq=False)
class BagPlan(Result, Pictured):
    """Error of each pooling on the pilot, and its forecast with more labelled bags."""

    pilot: PilotErrors
    forecasts: Mapping[str, Forecast]
    budgets: NDArray[np.int64]
    estimators: Mapping[str, Any]
    """The poolings as scikit-learn estimators, not fitted, as they were tried."""
    estimate: BagEstimate | None
    """The sparse task that the instances look like, with checks; None if they are too few."""
    beliefs: Mapping[str, Belief]
    """What the theory alone says of each pooling, if there is an estimate."""
    guess: float
    """Error of always saying the more frequent class."""
    shared: float = 0.0
    """Part of the pilot's instances that validation meets again in other bags; 0 where bags that
    share instances could be left out together."""

    @property
    def resolution(self) -> float:
        """The smallest error that the pilot can see: one bag."""
        return self.pilot.resolution

    @property
    def repeats_instances(self) -> bool:
        """Whether bags share so many instances that validation says little of new ones."""
        return self.shared > SHARED

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What to use, at each budget."""
        return tuple(advise(self.pilot, self.forecasts, int(n), self.guess) for n in self.budgets)

    @property
    def recommended(self) -> str:
        """The pooling to use with the largest budget."""
        return self.advice[-1].pooling

    @property
    def estimator(self) -> Any:
        """That pooling as a scikit-learn estimator, ready to be fitted on all bags."""
        from sklearn.base import clone

        return clone(self.estimators[self.recommended])

    def predicted(self, pooling: str, bags: float) -> Array:
        """Return the 90 % interval's lower end, middle and upper end of a pooling's error.

        Nothing below the pilot's resolution is claimed: there the lower end is 0, and the others
        are the resolution. Where bags share instances the upper end is what guessing errs, as
        validation has seen too little of what new instances do.
        """
        low, middle, high = self.forecasts[pooling].error(bags)
        high = max(high, self.guess) if self.repeats_instances else high
        least = self.resolution
        return np.array([low if low >= least else 0.0, max(middle, least), max(high, least)])

    def theory(self, pooling: str, bags: float) -> float:
        """Return what the theory alone says, without training anything; NaN if it says nothing."""
        belief = self.beliefs.get(pooling)
        if belief is None:
            return float("nan")
        return float(self.forecasts[pooling].laws[0](belief.strength, belief.dim, bags))

    def to_frame(self) -> pd.DataFrame:
        """One row for each pooling and size: measured on the pilot, or predicted with an interval.

        `at_most` marks predictions below the pilot's resolution, which is what is given then.
        """
        rows: list[dict[str, Any]] = []
        for place, name in enumerate(self.pilot.poolings):
            for at, size in enumerate(self.pilot.sizes):
                seen = {
                    "measured": self.pilot.error[place, at],
                    "stderr": self.pilot.stderr[place, at],
                }
                rows.append({"pooling": name, "bags": int(size), **seen})
            for size in self.budgets:
                low, middle, high = self.predicted(name, int(size))
                said = {"predicted": middle, "low": low, "high": high}
                at_most = bool(middle <= self.resolution)
                rows.append({"pooling": name, "bags": int(size), **said, "at_most": at_most})
        columns = ["pooling", "bags", "measured", "stderr", "predicted", "low", "high", "at_most"]
        return pd.DataFrame(rows, columns=columns).astype({"at_most": "boolean"})

    def headline(self) -> str:
        """The recommendation, and what it stands on."""
        return recommendation(self)

    def panel(self) -> Panel:
        """Learning curves of all poolings, with the interval of the recommended one."""
        return self.curves(self.pilot.poolings, {self.recommended})

    def curves(self, names: Sequence[str], intervals: Container[str]) -> Panel:
        """Learning curves of some poolings: measured on the pilot, and predicted beyond it."""
        first, last = float(self.pilot.sizes[0]), float(self.budgets[-1])
        sizes = np.geomspace(first, max(last, self.pilot.sizes[-1]), 25)
        guess = [self.guess] * len(sizes)
        series = [Series(sizes, guess, "dotted", "guessing", "guessing")]
        for name in names:
            low, middle, high = np.array([self.predicted(name, size) for size in sizes]).T
            if name in intervals:
                ends = {"lower": low, "upper": high}
                series.append(Series(sizes, middle, "band", None, name, **ends))
            place = self.pilot.poolings.index(name)
            seen, bars = self.pilot.error[place], self.pilot.stderr[place]
            series += [
                Series(sizes, middle, "line", name, name),
                Series(self.pilot.sizes, seen, "points", None, name, bars),
            ]
        title = f"measured on {self.pilot.bags} bags, and predicted beyond"
        x, y = "labelled bags trained on", "error on other bags"
        return Panel(title, x, y, series, y_scale="linear")


def plan_bags(
    bags: Bags,
    budgets: Sequence[int] | None = None,
    *,
    max_dim: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> BagPlan:
    """Cross-validate every pooling on a pilot, and predict its error with more bags.

    The pilot gives the level of each learning curve, the theory its shape beyond the pilot
    (docs/theory/sparse-bags.md). Needs scikit-learn.

    Parameters
    ----------
    bags
        The pilot: labelled bags, at least three of each class.
    budgets
        Numbers of labelled bags to predict for; 1, 2, 4 and 8 pilots by default.
    max_dim
        Keep at most so many principal components of the noise when the theory's own picture is
        estimated; chosen by the number of instances by default.
    """
    sizes = np.array(GROWTH) * len(bags)
    if budgets is not None:
        sizes = np.unique([count(one, "budgets", smallest=4) for one in budgets])
    if len(sizes) == 0:
        raise BadInput("budgets is empty; give at least one number of labelled bags.")
    if max_dim is not None:
        count(max_dim, "max_dim")
    first, second = np.random.SeedSequence(seed).spawn(2)
    effort = affordable(bags)
    shrinkage = best_shrinkage(bags, effort._replace(repeats=1), first)
    estimators = poolings(shrinkage)
    pilot = cross_validate(bags, estimators, effort, seed=second, progress=progress)
    try:
        found = estimate(bags, max_dim, seed)
    except BadInput:
        found = None
    beliefs = {} if found is None else {name: _belief(found, LAWS[name]) for name in THEORY}
    trusted = found is not None and all(check.holds for check in found.checks)
    prior = float(np.mean(bags.labels > 0))
    angles = pilot.angles()
    forecasts = {
        name: forecast(
            _laws(LAWS[name], bags, prior, found),
            pilot.sizes.astype(float),
            angles[place],
            bags=len(bags),
            correlation=pilot.correlation(place),
            overlap=pilot.overlap,
            dim=min(bags.dim, int(bags.lengths.sum())),
            belief=beliefs.get(name) if trusted else None,
        )
        for place, name in enumerate(pilot.poolings)
    }
    guess = min(prior, 1 - prior)
    shared = bags.shared if kept_together(bags, pilot.folds) is None else 0.0
    return BagPlan(pilot, forecasts, sizes, estimators, found, beliefs, guess, shared)


def _belief(found: BagEstimate, law: str) -> Belief:
    task = found.task
    pooled = task.strength * task.signals / np.sqrt(task.length)
    strength = max(float(pooled if law == "pooled" else task.strength), 1e-6)
    # repeated estimates scatter by 5 % from 100 bags, by less from more
    return Belief(strength, found.dim, 0.6 / np.sqrt(found.bags))


def _laws(model: str, bags: Bags, prior: float, found: BagEstimate | None) -> list[LearningLaw]:
    """Laws for the numbers of signals that are possible, the estimated one first."""
    if model == "pooled":
        return [learning_law(model, 1, 1, prior)]
    length = max(1, round(float(np.mean(bags.lengths))))
    likely = [] if found is None else [found.task.signals]
    signals = dict.fromkeys([*likely, 1, max(1, length // 10), max(1, length // 3)])
    lengths = tuple(sorted(bags.lengths.tolist()))
    return [learning_law(model, lengths, many, prior) for many in signals]


def measure_plan(
    plan: BagPlan,
    draw: Callable[[int, np.random.Generator], Bags],
    test: Bags | Mapping[str, Bags],
    *,
    replicates: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Train every pooling of a plan on fresh bags, and put errors beside the predictions.

    `draw(n, rng)` gives n labelled training bags; `test` is held out, and may be several sets by
    name. Returns one row for each budget, pooling and test set: test (its name, "test" when there
    is one), bags, pooling, predicted, low, high, measured, stderr.
    """
    from sklearn.base import clone

    replicates = count(replicates, "replicates", smallest=2)
    tests = {"test": test} if isinstance(test, Bags) else test
    rows = []
    for done, budget in enumerate(plan.budgets):
        errors: dict[tuple[str, str], list[float]] = {}
        for child in np.random.SeedSequence([seed, int(budget)]).spawn(replicates):
            bags = draw(int(budget), np.random.default_rng(child))
            for pooling, estimator in plan.estimators.items():
                for name, wrong in misses(clone(estimator), bags, tests).items():
                    errors.setdefault((name, pooling), []).append(float(wrong.mean()))
        for (name, pooling), values in errors.items():
            low, middle, high = plan.predicted(pooling, float(budget))
            rows.append(
                {
                    "test": name,
                    "bags": int(budget),
                    "pooling": pooling,
                    "predicted": middle,
                    "low": low,
                    "high": high,
                    "measured": float(np.mean(values)),
                    "stderr": float(np.std(values, ddof=1) / np.sqrt(len(values))),
                }
            )
        if progress is not None:
            progress(done + 1, len(plan.budgets))
    return pd.DataFrame(rows)
