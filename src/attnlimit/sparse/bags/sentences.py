"""What does a plan say to a person? The recommendation, what it stands on, and what to do next."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnlimit.sparse.bags.advice import MATTERS, SURE, Advice
from attnlimit.sparse.bags.poolings import THEORY

if TYPE_CHECKING:
    from attnlimit.sparse.bags.plan import BagPlan

SURPRISING = 0.02


def recommendation(plan: BagPlan) -> str:
    """Which pooling, from how many bags on, with which error, and whether to believe it."""
    if not plan.repeats_instances:
        return _recommended(plan)
    return (
        f"{_recommended(plan)} But {plan.shared:.0%} of the instances are in more than one bag: "
        "validation meets them again, so errors on new instances may be as large as guessing's; "
        "plan again with bags that share no instances."
    )


def _recommended(plan: BagPlan) -> str:
    last = plan.advice[-1]
    error, other = (
        said(plan, *plan.predicted(name, last.bags)) for name in (last.pooling, last.rival)
    )
    if last.signal < SURE:
        return (
            f"Cannot tell yet whether there is a signal: with {last.bags} bags {last.pooling} "
            f"would err {error}, and guessing errs {plan.guess:.1%}. {next_step(plan)}"
        )
    first = plan.advice[0].pooling
    changes = [
        f", and {after.pooling} from about {after.bags} bags on"
        for before, after in pairwise(plan.advice)
        if after.pooling != before.pooling
    ]
    compared = f"with {last.bags} bags {last.pooling} errs {error}, {last.rival} {other}"
    if last.better >= SURE:
        sure = "above 0.99" if last.better > 0.99 else f"{last.better:.2f}"
        return f"Use {first}{''.join(changes)}: {compared}; better with probability {sure}."
    open_ = f"the pilot cannot tell which is better (probability {last.better:.2f})"
    return f"Use {first}{''.join(changes)} for now: {compared}; {open_}. {next_step(plan)}"


def said(plan: BagPlan, low: float, middle: float, high: float) -> str:
    """Error and 90 % interval; what is below one bag of the pilot is not a number."""
    if high <= plan.resolution:
        return f"less than 1/{plan.pilot.bags}"
    range_ = f"(90 %: {f'{low:.1%} to' if low > 0 else 'up to'} {high:.1%})"
    if middle <= plan.resolution:
        return f"less than 1/{plan.pilot.bags} {range_}"
    return f"{middle:.1%} {range_}"


def next_step(plan: BagPlan) -> str:
    """Say what is the cheapest way to know more, if the pilot cannot tell."""
    last: Advice = plan.advice[-1]
    if last.settled:
        return f"Nothing more has to be known to choose {last.pooling}."
    if last.tell is None:
        return (
            f"{last.pooling.capitalize()} and {last.rival} differ too little for a pilot worth "
            f"labelling to tell (less than {MATTERS:.0%}, or than its noise at 64 times as many "
            "bags): take the simpler."
        )
    more = max(last.tell - plan.pilot.bags, 1)
    return (
        f"To tell {last.pooling} from {last.rival}, label about {more} more bags "
        f"({plan.pilot.bags + more} in all) and plan again."
    )


def remarks(plan: BagPlan) -> list[str]:
    """Where theory and pilot disagree, what was fitted, and why predictions may be higher."""
    return [*_theory_and_pilot(plan), _fitted(plan), *_luck(plan)]


def _theory_and_pilot(plan: BagPlan) -> list[str]:
    told = plan.recommended if plan.recommended in THEORY else "attention"
    place, size = plan.pilot.poolings.index(told), int(plan.pilot.sizes[-1])
    measured, stderr = (float(v[place, -1]) for v in (plan.pilot.error, plan.pilot.stderr))
    alone = plan.theory(told, size)
    seen = f"{measured:.1%} ± {stderr:.1%} when trained on {size} bags of the pilot"
    lines = []
    if np.isnan(alone):
        lines.append("The bags are too few for the theory's own picture; the pilot alone speaks.")
    elif abs(alone - measured) > 2 * float(plan.pilot.noise(alone)):
        shown = said(plan, alone, alone, alone).split(" (")[0]
        lines.append(
            f"Theory and pilot disagree: from the instances alone, {told} would err "
            f"{shown}, but it errs {seen}. The pilot counts; the theory gives only the shape of "
            "the curve beyond it."
        )
    else:
        lines.append(
            f"Theory and pilot agree within noise: from the instances alone, {told} would err "
            f"{said(plan, alone, alone, alone).split(' (')[0]}, and it errs {seen}."
        )
    if plan.forecasts[plan.recommended].surprise < SURPRISING:
        lines.append(
            "The learning curve on the pilot has not the shape of the theory's; do not trust the "
            "prediction far beyond the pilot."
        )
    return lines


def _luck(plan: BagPlan) -> list[str]:
    """Why an error is predicted that is larger than one measured with fewer bags, if one is."""
    size = int(plan.pilot.sizes[-1])
    next_one = min((int(n) for n in plan.budgets if n > size), default=None)
    if next_one is None:
        return []
    highest = plan.pilot.error[:, -1] + plan.pilot.stderr[:, -1]
    above = [
        name
        for name, seen in zip(plan.pilot.poolings, highest, strict=True)
        if plan.predicted(name, next_one)[1] > seen
    ]
    if not above:
        return []
    return [
        f"More is predicted for {', '.join(above)} than {size} bags of the pilot measured: so few "
        "errors can be luck, which the interval allows for."
    ]


def _fitted(plan: BagPlan) -> str:
    found = plan.forecasts[plan.recommended]
    strength, dim, floor = (found.interval(name) for name in ("strength", "dim", "floor"))
    return (
        f"Fitted to {plan.recommended} (90 %): effective strength {strength[1]:.2g} "
        f"({strength[0]:.2g} to {strength[2]:.2g}), effective dimension {dim[1]:.0f} "
        f"({dim[0]:.0f} to {dim[2]:.0f}); of the bags, "
        f"{floor[0]:.0%} to {floor[2]:.0%} are decided by chance whatever is labelled."
    )


def broken_assumptions(plan: BagPlan) -> list[str]:
    """Say which assumptions of the theory fail, and what that means."""
    if plan.estimate is None:
        return []
    return [
        f"Does not hold: {check.assumption}, {check.shown[0]} where {check.shown[1]} was expected; "
        f"{check.meaning}."
        for check in plan.estimate.checks
        if not check.holds
    ]


def spoken(plan: BagPlan) -> pd.DataFrame:
    """Return the plan's numbers as a person reads them: one row for each number of bags."""
    rows = []
    for at, size in enumerate(plan.pilot.sizes):
        seen = zip(
            plan.pilot.poolings, plan.pilot.error[:, at], plan.pilot.stderr[:, at], strict=True
        )
        words = {name: f"{error:.1%} ± {stderr:.1%}" for name, error, stderr in seen}
        rows.append({"bags": int(size), "": "measured", **words})
    for size in plan.budgets:
        told = {name: said(plan, *plan.predicted(name, int(size))) for name in plan.pilot.poolings}
        rows.append({"bags": int(size), "": "predicted", **told})
    return pd.DataFrame(rows)
