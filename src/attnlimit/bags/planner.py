"""Plans for labelled bags: the pooling to use, the bags that suffice, and predicted errors.

The pilot gives the level of each learning curve, the theory its shape beyond the pilot
(docs/theory/sparse-bags.md).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from attnlimit.bags.data import Bags, check_bags
from attnlimit.bags.estimation import BagEstimate, estimate
from attnlimit.bags.forecast import Forecast, LearningLaw, Prior, forecast, learning_law
from attnlimit.bags.pilot import (
    LAWS,
    THEORY,
    PilotErrors,
    Progress,
    affordable,
    best_shrinkage,
    cross_validate,
    poolings,
    sharing_groups,
)
from attnlimit.checks import Array, count, probability
from attnlimit.constants import ESTIMATE_SPREAD
from attnlimit.errors import BadInput, NotConverged
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.threads import small_matrices

GROWTH = (1, 2, 4, 8)
"""Default budgets, in sizes of the pilot."""
SHARED = 0.05
"""Fraction of instances in more than one bag that may be accidental, such as empty patches."""
SIMPLEST = "mean pooling"
SURE = 0.9
"""Probability of being better at which a choice is settled."""
MATTERS = 0.01
"""Difference of errors that is worth more labels, or a pooling other than the simplest."""
SURPRISING = 0.02
DRAWS = 4000


@dataclass(frozen=True)
class Advice:
    """The pooling to use with a number of labelled bags, and how sure that is."""

    bags: int
    pooling: str
    rival: str
    """The best of the others, or the simplest if it is not recommended itself."""
    better: float
    """Probability that the pooling has a smaller error than its rival."""
    signal: float
    """Probability that its error is smaller than that of guessing."""
    tell: int | None
    """Bags in a pilot that would tell the two apart; None if more than 64 pilots."""

    @property
    def settled(self) -> bool:
        """Whether the pilot decides."""
        return self.better >= SURE and self.signal >= SURE


def advise(
    pilot: PilotErrors, forecasts: Mapping[str, Forecast], bags: int, guess: float
) -> Advice:
    """Compare forecasts at a number of bags; noise of the pilot's test bags is common to all."""
    names = list(forecasts)
    normals = np.random.default_rng(0).multivariate_normal(
        np.zeros(len(names)), pilot.between(), DRAWS, method="cholesky"
    )
    drawn = {
        name: forecast.error(bags, norm.cdf(normals[:, place]))
        for place, (name, forecast) in enumerate(forecasts.items())
    }
    expected = {name: float(np.mean(errors)) for name, errors in drawn.items()}
    order = sorted(names, key=expected.__getitem__)
    # a pooling that is worse than the simplest on the pilot is not recommended
    measured = dict(zip(pilot.poolings, pilot.error[:, -1], strict=True))
    best = next(name for name in order if measured[name] <= measured[SIMPLEST])
    if expected[SIMPLEST] - expected[best] < max(MATTERS, pilot.resolution):
        best = SIMPLEST
    rival = next(name for name in order if name != best) if best == SIMPLEST else SIMPLEST
    better = float(np.mean(drawn[best] < drawn[rival]))
    signal = float(np.mean(drawn[best] < guess * (1 - 1e-9)))
    return Advice(bags, best, rival, better, signal, _pilot_to_tell(pilot, forecasts, best, rival))


def _pilot_to_tell(
    pilot: PilotErrors, forecasts: Mapping[str, Forecast], *names: str
) -> int | None:
    """Size of a pilot in which the forecast difference of two poolings exceeds its noise."""
    first, second = (pilot.wrong[pilot.poolings.index(name), -1] for name in names)
    noise = (1 + pilot.overlap) * max(float(np.var(first - second)), pilot.resolution)
    for size in np.unique(np.round(np.geomspace(pilot.bags, 64 * pilot.bags, 25)).astype(int)):
        gap = abs(float(np.diff([forecasts[name].error(size)[1] for name in names])[0]))
        if gap > max(MATTERS, norm.ppf(SURE) * np.sqrt(noise / size)):
            return int(size)
    return None


@dataclass(frozen=True, eq=False)
class BagPlan(Result, Pictured):
    """Error of each pooling on the pilot, and its forecast with more labelled bags."""

    pilot: PilotErrors
    forecasts: Mapping[str, Forecast]
    budgets: NDArray[np.int64]
    estimators: Mapping[str, Any]
    """The poolings as scikit-learn estimators, not fitted, with the settings of the plan."""
    estimate: BagEstimate | None
    """The sparse task that the instances look like, with checks; None if they are too few."""
    priors: Mapping[str, Prior]
    """Strength and dimension that the estimate gives for each pooling of the theory."""
    guess: float
    """Error of always predicting the more frequent class."""
    shared: float = 0.0
    """Fraction of instances that validation meets again in other bags; 0 where bags that share
    instances were left out together."""
    target: float | None = None
    """Largest error that is wanted."""
    deciding: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Instances that decide a few bags of the pilot (`deciding_instances`)."""

    @property
    def resolution(self) -> float:
        """The smallest error that the pilot can show: one bag."""
        return self.pilot.resolution

    @property
    def repeats_instances(self) -> bool:
        """Whether so many instances are shared that validation says little about new ones."""
        return self.shared > SHARED

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """Recommendation at each budget."""
        return tuple(advise(self.pilot, self.forecasts, int(n), self.guess) for n in self.budgets)

    @property
    def recommended(self) -> str:
        """The pooling to use with the largest budget."""
        return self.advice[-1].pooling

    @property
    def estimator(self) -> Any:
        """The recommended pooling as a scikit-learn estimator that is not fitted."""
        from sklearn.base import clone

        return clone(self.estimators[self.recommended])

    @cached_property
    def enough(self) -> int | None:
        """Smallest number of labelled bags that suffices for the recommended pooling.

        With a target: the number at which the predicted error is the target; None if no number up
        to the largest budget reaches it. Without: the number beyond which more bags, up to the
        largest budget, lower the predicted error by less than 1 %. From there on it stays so.
        """
        last = float(self.budgets[-1])
        first = min(float(self.pilot.sizes[0]), last)
        sizes = np.unique(np.round(np.geomspace(first, last, 80)).astype(int))
        errors = np.array([self.predicted(self.recommended, int(n))[1] for n in sizes])
        limit = errors[-1] + MATTERS if self.target is None else self.target
        above = np.flatnonzero(errors > limit)
        if len(above) and above[-1] == len(sizes) - 1:
            return None
        return int(sizes[above[-1] + 1 if len(above) else 0])

    def predicted(self, pooling: str, bags: float) -> Array:
        """Return the 90 % interval's lower end, median and upper end of a pooling's error.

        Nothing below the pilot's resolution is claimed: there the lower end is 0, and the others
        are the resolution. Where bags share instances the upper end is the error of guessing.
        """
        low, middle, high = self.forecasts[pooling].error(bags)
        high = max(high, self.guess) if self.repeats_instances else high
        least = self.resolution
        return np.array([low if low >= least else 0.0, max(middle, least), max(high, least)])

    def theory(self, pooling: str, bags: float) -> float:
        """Error by the estimated task alone, without training; NaN where there is no estimate."""
        prior = self.priors.get(pooling)
        if prior is None:
            return float("nan")
        return float(self.forecasts[pooling].laws[0](prior.strength, prior.dim, bags))

    def to_frame(self) -> pd.DataFrame:
        """One row for each pooling and size: measured on the pilot, or predicted with an interval.

        Where predictions are below the pilot's resolution, a column `at_most` marks them.
        """
        rows: list[dict[str, Any]] = []
        for name, errors, stderrs in zip(
            self.pilot.poolings, self.pilot.error, self.pilot.stderr, strict=True
        ):
            for size, error, stderr in zip(self.pilot.sizes, errors, stderrs, strict=True):
                rows.append({"pooling": name, "bags": size, "measured": error, "stderr": stderr})
            for size in self.budgets:
                low, middle, high = self.predicted(name, int(size))
                row = {"pooling": name, "bags": size, "predicted": middle, "low": low, "high": high}
                rows.append({**row, "at_most": bool(middle <= self.resolution)})
        frame = pd.DataFrame(rows)
        marks = frame.pop("at_most").eq(True)
        return frame.assign(at_most=marks) if marks.any() else frame

    def formatted(self) -> pd.DataFrame:
        """One row for each number of bags, errors of all poolings as text."""
        rows = []
        for row in self.to_frame().to_dict("records"):
            kind, text = "measured", f"{row['measured']:.1%} ± {row['stderr']:.1%}"
            if np.isnan(row["measured"]):
                ends = (row[name] for name in ("low", "predicted", "high"))
                kind, text = "predicted", self.format_error(*ends)
            rows.append({"bags": row["bags"], "": kind, "pooling": row["pooling"], "text": text})
        wide = pd.DataFrame(rows).pivot(index=["", "bags"], columns="pooling", values="text")
        return wide[list(self.pilot.poolings)].reset_index()[["bags", "", *self.pilot.poolings]]

    def to_dict(self) -> dict[str, Any]:
        """Everything that the page says, for JSON."""
        estimate = self.estimate
        return {
            "answer": self.headline(),
            "enough": self.enough,
            "recommended": self.recommended,
            "next_step": self.next_step(),
            "advice": [asdict(advice) for advice in self.advice],
            "task": None if estimate is None else {**asdict(estimate.task), "dim": estimate.dim},
            "checks": None if estimate is None else estimate.to_frame(),
            "deciding": self.deciding,
            "table": self.to_frame(),
        }

    def format_error(self, low: float, middle: float, high: float) -> str:
        """Error and 90 % interval; below one bag of the pilot no number is given."""
        if high <= self.resolution:
            return f"less than 1/{self.pilot.bags}"
        interval = f"(90 %: {f'{low:.1%} to' if low > 0 else 'up to'} {high:.1%})"
        if middle <= self.resolution:
            return f"less than 1/{self.pilot.bags} {interval}"
        return f"{middle:.1%} {interval}"

    def headline(self) -> str:
        """How many bags suffice, for which pooling, with what error and how surely."""
        last = self.advice[-1]
        final = self.format_error(*self.predicted(last.pooling, last.bags))
        if last.signal < SURE:
            parts = [
                f"Cannot tell yet whether there is a signal: with {last.bags} bags {last.pooling} "
                f"would have an error of {final}; guessing has {self.guess:.1%}. {self.next_step()}"
            ]
        else:
            error = self.predicted(last.pooling, self.enough or last.bags)
            start = (
                f"No number of bags up to {last.bags} reaches an error of {self.target:.1%}: "
                f"{last.pooling} is predicted to have {final} with {last.bags}."
                if self.enough is None
                else f"{self.enough} labelled bags are enough for {last.pooling}: predicted error "
                f"{self.format_error(*error)}; {last.bags} bags would give {final}."
            )
            parts = [start, *self._comparison(last)]
        if self.repeats_instances:
            parts.append(
                f"But {self.shared:.0%} of the instances are in more than one bag: errors on new "
                "instances may be as large as guessing's. Plan again with bags that share none."
            )
        return " ".join(parts)

    def _comparison(self, last: Advice) -> list[str]:
        """Where the recommendation changes, and how surely it is better than its rival."""
        parts = [
            f"Below about {after.bags} bags use {before.pooling}."
            for before, after in pairwise(self.advice)
            if after.pooling != before.pooling
        ]
        rival = self.format_error(*self.predicted(last.rival, last.bags))
        sure = "above 0.99" if last.better > 0.99 else f"{last.better:.2f}"
        parts.append(f"With {last.bags} bags {last.rival} has {rival};")
        if last.better >= SURE:
            return [*parts, f"{last.pooling} is better with probability {sure}."]
        unsettled = f"the pilot cannot tell which is better (probability {sure})."
        return [*parts, unsettled, self.next_step()]

    def next_step(self) -> str:
        """The cheapest way to settle the choice."""
        last = self.advice[-1]
        if last.settled:
            return f"The pilot settles the choice of {last.pooling}."
        if last.tell is None:
            return (
                f"{last.pooling.capitalize()} and {last.rival} differ by less than {MATTERS:.0%}, "
                "or than the noise of a pilot 64 times as large: take the simpler."
            )
        more = max(last.tell - self.pilot.bags, 1)
        return (
            f"To tell {last.pooling} from {last.rival}, label more bags, about "
            f"{self.pilot.bags + more} in all, and plan again."
        )

    def remarks(self) -> list[str]:
        """Agreement of theory and pilot, fitted parameters, and assumptions that fail."""
        lines = [self._theory_and_pilot()]
        fit = self.forecasts[self.recommended]
        if fit.surprise < SURPRISING:
            lines.append(
                "The learning curve on the pilot does not have the shape of the theory's: do not "
                "rely on predictions far beyond the pilot."
            )
        strength, dim, floor = (fit.interval(name) for name in ("strength", "dim", "floor"))
        lines.append(
            f"Fitted to {self.recommended} (90 %): effective strength {strength[1]:.2g} "
            f"({strength[0]:.2g} to {strength[2]:.2g}), effective dimension {dim[1]:.0f} "
            f"({dim[0]:.0f} to {dim[2]:.0f}); {floor[0]:.0%} to {floor[2]:.0%} of the bags are "
            "decided by chance, however many are labelled."
        )
        size = int(self.pilot.sizes[-1])
        beyond = self.budgets[self.budgets > size][:1]
        highest = self.pilot.error[:, -1] + self.pilot.stderr[:, -1]
        above = [
            name
            for name, measured in zip(self.pilot.poolings, highest, strict=True)
            if len(beyond) and self.predicted(name, int(beyond[0]))[1] > measured
        ]
        if above:
            lines.append(
                f"For {', '.join(above)} the prediction is above what {size} bags of the pilot "
                "measured: few errors can be luck, and the interval allows for it."
            )
        return lines + [
            f"Does not hold: {check.assumption}, {check.shown[0]} where {check.shown[1]} was "
            f"expected; {check.meaning}."
            for check in (() if self.estimate is None else self.estimate.checks)
            if not check.holds
        ]

    def _theory_and_pilot(self) -> str:
        name = self.recommended if self.recommended in THEORY else "attention"
        place, size = self.pilot.poolings.index(name), int(self.pilot.sizes[-1])
        measured, stderr = (float(v[place, -1]) for v in (self.pilot.error, self.pilot.stderr))
        alone = self.theory(name, size)
        if np.isnan(alone):
            return "There are too few bags to estimate a task; the pilot alone is used."
        agree = abs(alone - measured) <= 2 * float(self.pilot.noise(alone))
        shown = self.format_error(alone, alone, alone).split(" (")[0]
        return (
            f"Theory and pilot {'agree within noise' if agree else 'disagree'}: the estimated "
            f"task gives {name} an error of {shown}; measured were {measured:.1%} ± "
            f"{stderr:.1%} with {size} bags."
            + ("" if agree else " The forecast keeps the pilot's level.")
        )

    def panel(self) -> Panel:
        """Learning curves of all poolings, with the interval of the recommended one."""
        return self.curves(self.pilot.poolings, {self.recommended})

    def curves(self, names: Sequence[str], intervals: Container[str]) -> Panel:
        """Learning curves of some poolings: measured on the pilot, and predicted beyond it."""
        first, last = float(self.pilot.sizes[0]), float(self.budgets[-1])
        sizes = np.geomspace(first, max(last, self.pilot.sizes[-1]), 25)
        series = [Series(sizes, [self.guess] * len(sizes), "dotted", "guessing", "guessing")]
        for name in names:
            low, middle, high = np.array([self.predicted(name, size) for size in sizes]).T
            if name in intervals:
                series.append(Series(sizes, middle, "band", None, name, lower=low, upper=high))
            place = self.pilot.poolings.index(name)
            measured, bars = self.pilot.error[place], self.pilot.stderr[place]
            series += [
                Series(sizes, middle, "dashed" if place % 2 else "line", name, name),
                Series(self.pilot.sizes, measured, "points", None, name, bars),
            ]
        title = f"measured on {self.pilot.bags} bags, and predicted beyond"
        return Panel(title, "labelled bags", "error on new bags", series, y_scale="linear")


def plan(
    bags: Bags,
    budgets: Sequence[int] | None = None,
    *,
    error: float | None = None,
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
    error
        Largest error that is wanted; `BagPlan.enough` is then the number of bags for it.

    Examples
    --------
    >>> import attnlimit as al
    >>> X, y = al.sparse.SparseTask(6, 1, 5.0).sample(60, 5)
    >>> al.bags.plan(al.bags.make_bags(list(X), y)).recommended
    'attention'
    """
    check_bags(bags)
    sizes = np.array(GROWTH) * len(bags)
    if budgets is not None:
        given = np.atleast_1d(np.asarray(budgets, dtype=object)).ravel().tolist()
        sizes = np.unique([count(size, "budgets", smallest=4) for size in given])
    if len(sizes) == 0:
        raise BadInput("budgets is empty; give at least one number of labelled bags.")
    target = None if error is None else probability(error, "error")
    seed = count(seed, "seed", smallest=0)
    with small_matrices(int(bags.lengths.sum()) * bags.dim):
        first, second = np.random.SeedSequence(seed).spawn(2)
        effort = affordable(bags)
        estimators = poolings(best_shrinkage(bags, effort._replace(repeats=1), first))
        pilot = cross_validate(bags, estimators, effort, seed=second, progress=progress)
        try:
            task = estimate(bags, seed)
        except BadInput:
            task = None
        priors = {} if task is None else {name: _prior(task, LAWS[name]) for name in THEORY}
        trusted = task is not None and all(check.holds for check in task.checks)
        positives = float(np.mean(bags.signs > 0))
        forecasts = {
            name: forecast(
                _laws(LAWS[name], bags, positives, task),
                pilot.sizes.astype(float),
                angles,
                bags=len(bags),
                correlation=pilot.correlation(place),
                overlap=pilot.overlap,
                dim=min(bags.dim, int(bags.lengths.sum())),
                prior=priors.get(name) if trusted else None,
            )
            for place, (name, angles) in enumerate(zip(pilot.poolings, pilot.angles(), strict=True))
        }
        guess = min(positives, 1 - positives)
        shared = bags.shared if sharing_groups(bags, pilot.folds) is None else 0.0
        result = BagPlan(pilot, forecasts, sizes, estimators, task, priors, guess, shared, target)
        return replace(result, deciding=deciding_instances(result.estimator, bags))


def _prior(estimate: BagEstimate, law: str) -> Prior:
    task = estimate.task
    pooled = task.strength * task.signals / np.sqrt(task.length)
    strength = max(float(pooled if law == "pooled" else task.strength), 1e-6)
    return Prior(strength, estimate.dim, ESTIMATE_SPREAD / np.sqrt(estimate.bags))


def _laws(model: str, bags: Bags, positives: float, task: BagEstimate | None) -> list[LearningLaw]:
    """Laws for the numbers of signals that are possible, the estimated number first."""
    if model == "pooled":
        return [learning_law(model, 1, 1, positives)]
    length = max(1, round(float(np.mean(bags.lengths))))
    likely = [] if task is None else [task.task.signals]
    signals = dict.fromkeys([*likely, 1, max(1, length // 10), max(1, length // 3)])
    lengths = tuple(sorted(bags.lengths.tolist()))
    return [learning_law(model, lengths, number, positives) for number in signals]


def deciding_instances(estimator: Any, bags: Bags, each: int = 3, top: int = 3) -> pd.DataFrame:
    """Train a pooling on all bags, and list the instances that decide a few.

    The bags are the `each` of each class with the largest predicted probability to be positive.
    One row for each of the `top` instances of a bag: bag (its name), label, probability (that the
    bag is positive), instance (its index), of (instances), alone (probability of a bag of this
    instance only). No rows if training does not converge.
    """
    try:
        pooling = estimator.fit(list(bags.instances), bags.signs)
    except NotConverged:
        return pd.DataFrame()
    chance = pooling.predict_proba(list(bags.instances))[:, 1]
    rows = []
    for sign, label in zip((1, -1), reversed(bags.classes), strict=True):
        members = np.flatnonzero(bags.signs == sign)
        for index in members[np.argsort(-chance[members], kind="stable")][:each]:
            bag = bags.instances[index]
            alone = pooling.predict_proba([instance[None] for instance in bag])[:, 1]
            for place in np.argsort(-alone, kind="stable")[:top]:
                row: dict[str, Any] = {"bag": bags.name(index), "label": str(label)}
                numbers = {"probability": float(chance[index]), "instance": int(place)}
                rows.append({**row, **numbers, "of": len(bag), "alone": float(alone[place])})
    return pd.DataFrame(rows)
