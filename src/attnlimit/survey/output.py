"""What does reading fewer keys do to a model's output? Plans, and curves of every scheme.

The work is cut into parts that know nothing of each other: the plans, what is predicted from one
set of probes, and what each scheme does when the model is run. Plans are made on the question's
passages; the curves are those of a passage that they have not seen, where the text has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.models import OutputPlan, Trial, output_errors, try_samplers
from attnlimit.models.output.ground import CapturesAlone, Ground, ground_of
from attnlimit.models.output.plan import plan_on
from attnlimit.samplers import (
    Keep,
    Sampler,
    SinksAndRecent,
    SinksAndWindow,
    Threshold,
    TopK,
    TopP,
)
from attnlimit.samplers.spec import parse_sampler, sampler_spec
from attnlimit.survey.question import Question
from attnlimit.survey.schemas import RUN

ALL = "all keys"
PLAN, PREDICTED = "plan", "predicted"
SAMPLED = {"threshold": (1 / 16, 1 / 8), "top-k + sample": (1 / 8, 1 / 4)}
"""Schemes that draw, and the sizes at which they are measured, over the context."""
FIXED = {
    "top-k": (1 / 8, 1 / 4, 1 / 2, 3 / 4),
    "top-p": (0.9, 0.97, 0.99),
    "sinks + recent": (1 / 8, 1 / 4, 1 / 2),
}
"""Schemes that draw nothing; of top-p the shares of the weight."""
LINE = {"threshold": np.geomspace(1 / 32, 4, 15), "top-k + sample": (1 / 16, 1 / 8, 1 / 4, 1 / 2)}
"""Sizes at which schemes that draw are predicted."""

Row = dict[str, Any]


def output_parts() -> list[str]:
    """Return the parts that `survey_output` is cut into."""
    return [PLAN, PREDICTED, *SAMPLED, *FIXED]


def survey_output(question: Question, part: str, seed: int) -> dict[str, list[Row]]:
    """Return a part's rows of the tables "targets", "shares" and "output"."""
    if part == PLAN:
        return survey_plans(question, seed, question.goal.targets())
    if question.stored is not None:  # there is no model to run
        return {"targets": [], "shares": [], "output": []}
    rows = _predicted(question, seed) if part == PREDICTED else _measured(question, part, seed)
    return {"targets": [], "shares": [], "output": list(rows)}


def planned(question: Question, tables: Mapping[str, pd.DataFrame]) -> OutputPlan:
    """Return the plan for what was asked, from the tables."""
    targets, shares = tables["targets"], tables["shares"]
    row = asked_row(question, targets)
    heads = shares[shares.target == row.target].sort_values(["layer", "head"])
    shape = (heads.layer.nunique(), heads["head"].nunique())
    sensitivity = heads.sensitivity.to_numpy(dtype=float)
    shared = heads.groupby(["layer", "kv_head"]).kv_keys.first()
    samplers = [None if one == ALL else parse_sampler(one) for one in heads.sampler]
    names = ["measure", "target", "predicted", "stderr", "next_text", "price", "dense_price"]
    return OutputPlan(
        **{name: row[name] for name in names},
        mean_keys=row["keys"],
        mean_visible=row.visible,
        per=question.goal.per,
        scheme=next((type(one).__name__ for one in samplers if one is not None), ALL),
        tokens=tuple(len(one.ids) for one in question.passages),
        probes=question.goal.probes,
        model=question.model,
        weights=question.weights,
        trusted=bool(row.trusted),
        heads=tuple(zip(*[iter(samplers)] * shape[1], strict=True)),
        contributions=heads.contribution.to_numpy().reshape(shape),
        keys=heads["keys"].to_numpy().reshape(shape),
        cost=question.goal.cost,
        sensitivity=None if np.isnan(sensitivity).any() else sensitivity.reshape(shape),
        kv_keys=None if shared.isna().any() else shared.to_numpy().reshape(shape[0], -1),
    )


def asked_row(question: Question, targets: pd.DataFrame) -> pd.Series:
    """Return the row of the target that was asked, which alone may have been run."""
    return targets[targets.target == question.goal.allowed].iloc[0]


def plans_for(
    question: Question,
    seed: int,
    targets: Sequence[float],
    progress: Callable[[int, int], None] | None = None,
    ground: Ground | None = None,
) -> list[OutputPlan]:
    """Plan for all targets on the question's passages, or on its captures, which have probes.

    `ground` is what knows the captures' errors, if workers do.
    """
    goal = question.goal
    how: dict[str, Any] = {"scheme": goal.scheme, "per": goal.per, "cost": goal.cost}
    how |= {"sensitive": [goal.allowed], "progress": progress}
    if question.stored is not None:
        known = ground or CapturesAlone(question.captures(), goal.output)
        return plan_on(known, goal.output, targets, **how)
    texts = [list(one.ids) for one in question.passages]
    known = ground_of(question.loaded(), texts, goal.output, probes=goal.probes, seed=seed)
    return plan_on(known, goal.output, targets, **how)


def survey_plans(
    question: Question,
    seed: int,
    targets: Sequence[float],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Row]]:
    """Return the rows of plans for all targets.

    The asked one is run on a passage not seen yet. Captures cannot run: their plans are the curve.
    """
    plans = plans_for(question, seed, targets, progress)
    found = [_target(plan) | dict.fromkeys(RUN) for plan in plans]
    curve: list[Row] = []
    if question.stored is None:
        asked = targets.index(question.goal.allowed)
        found[asked] |= _run(question, plans[asked], seed)
    elif question.goal.scheme == "threshold":
        names = ("sampler", "keys", "visible", "stderr", "trusted")
        drawn = {"law": "predicted", "scheme": "threshold"}
        curve = [drawn | {n: row[n] for n in names} | {"error": row["predicted"]} for row in found]
    shares = [row for plan in plans for row in _shares(plan)]
    return {"targets": found, "shares": shares, "output": curve}


def _run(question: Question, plan: OutputPlan, seed: int) -> Row:
    repeats, ids = question.goal.repeats, list(question.measured_on().ids)
    trial = try_samplers(question.loaded(), ids, plan, repeats=repeats, seed=seed)
    return _trial(trial) | {"repeats": repeats, "unseen": question.unseen is not None}


def _target(plan: OutputPlan) -> Row:
    names = [
        "measure",
        "target",
        "predicted",
        "stderr",
        "next_text",
        "trusted",
        "price",
        "dense_price",
    ]
    kinds = {ALL if one is None else sampler_spec(one) for row in plan.heads for one in row}
    return {name: getattr(plan, name) for name in names} | {
        "keys": plan.mean_keys,
        "visible": plan.mean_visible,
        "sampler": kinds.pop() if len(kinds) == 1 else None,
    }


def _shares(plan: OutputPlan) -> Iterator[Row]:
    group = 1 if plan.kv_keys is None else plan.keys.shape[1] // plan.kv_keys.shape[1]
    for layer, row in enumerate(plan.heads):
        for head, sampler in enumerate(row):
            yield {
                "target": plan.target,
                "layer": layer,
                "head": head,
                "sampler": ALL if sampler is None else sampler_spec(sampler),
                "keys": plan.keys[layer, head],
                "contribution": plan.contributions[layer, head],
                "sensitivity": None if plan.sensitivity is None else plan.sensitivity[layer, head],
                "kv_head": head // group,
                "kv_keys": None if plan.kv_keys is None else plan.kv_keys[layer, head // group],
            }


def _predicted(question: Question, seed: int) -> Iterator[Row]:
    """Schemes that draw, from one set of probes, and the yardstick at as many keys."""
    context = len(question.measured_on().ids)
    samplers = {
        (scheme, sampler_spec(one)): one
        for scheme, sizes in LINE.items()
        for one in _sized(scheme, sizes, context, question)
    }
    found = output_errors(
        question.loaded(),
        list(question.measured_on().ids),
        {spec: one for (_, spec), one in samplers.items()},
        output=question.goal.output,
        probes=question.goal.probes,
        seed=seed,
    )
    for scheme, spec in samplers:
        one = found[spec]
        row = {"sampler": spec, "keys": one.mean_keys, "visible": one.mean_visible}
        about = row | {"error": one.value, "stderr": one.stderr, "trusted": one.trusted}
        yield {"law": "predicted", "scheme": scheme} | about
        if scheme == "threshold":
            least = {"error": one.yardstick, "stderr": None, "sampler": None}
            yield {"law": "predicted", "scheme": "yardstick"} | about | least


def _measured(question: Question, scheme: str, seed: int) -> Iterator[Row]:
    """One scheme, run in the model at each of its sizes."""
    ids = list(question.measured_on().ids)
    fixed = scheme in FIXED
    for sampler in _sized(scheme, (FIXED | SAMPLED)[scheme], len(ids), question):
        repeats = 1 if fixed else question.goal.repeats
        found = try_samplers(question.loaded(), ids, sampler, repeats=repeats, seed=seed)
        values = _trial(found)
        yield {
            "law": "measured",
            "scheme": scheme,
            "sampler": sampler_spec(sampler),
            "keys": found.mean_keys,
            "visible": found.mean_visible,
            "error": values["measured"],
            "stderr": None if fixed else values["measured_stderr"],
            "trusted": True,
        }


def _trial(found: Trial) -> Row:
    causal = found.kl is not None
    name = "kl" if causal else "embedding_cosine"
    return {
        "measured": found.kl if causal else 1 - found.embedding_cosine,
        "measured_stderr": found.stderr[name],
        "perplexity": found.perplexity,
        "dense_perplexity": found.dense_perplexity,
        "same_token": found.top1,
    }


def _sized(scheme: str, sizes: Any, context: int, question: Question) -> list[Sampler]:
    """Return the samplers of a scheme at sizes over the context, each once."""
    if scheme == "top-p":
        return [TopP(share) for share in sizes]
    counts = sorted({max(2, round(size * context)) for size in sizes})
    makers: Mapping[str, Any] = {
        "threshold": lambda n: Threshold(float(n)),
        "top-k": TopK,
        "top-k + sample": Keep(TopK(1), sample=1).sized,
        "sinks + recent": (
            SinksAndRecent() if question.loaded().causal else SinksAndWindow()
        ).sized,
    }
    return [makers[scheme](count) for count in counts]
