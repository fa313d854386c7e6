"""`attnlimit plan`: how many tokens each head needs, by which scheme, as a table and a file."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from attnlimit.budgets import Plan, plan_budgets
from attnlimit.budgets.longer import FACTORS
from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.options import AsJson
from attnlimit.cli.output_plan import OutputOptions, show_output_plan
from attnlimit.cli.show import print_json, print_table, progress_bar, run_view, say
from attnlimit.cli.where import WorkerOptions
from attnlimit.models.heads.rounding import rounding_remarks
from attnlimit.survey import Question

FEW_HEADS = 16
"""Heads up to which starting processes takes longer than what they save."""


def plan(
    asked: ModelOptions,
    whole: OutputOptions,
    who: WorkerOptions,
    budget: Annotated[Path | None, typer.Option(help="Write the budget file here.")] = None,
    json: AsJson = False,
) -> None:
    """Budget every head of a model on a text, or with --kl what the whole model may read."""
    question = asked.question()
    if whole.asked:
        show_output_plan(question, whole, budget, json)
        return
    found = _planned(question, who, json)
    written = found.write(budget) if budget is not None else None
    if json:
        print_json({**found.to_dict(), "file": written})
        return
    print_table(found.to_frame(), f"{question.model}: certified tokens, by scheme")
    say(found)
    stuck = [head for head in found.heads if not head.kind.thinnable]
    if stuck:
        names = ", ".join(f"{head.layer}.{head.head} ({head.kind.name})" for head in stuck)
        say(f"  layer.head not thinnable: {names}")
    doubtful = [f"{head.layer}.{head.head}" for head in found.heads if head.varies]
    if doubtful:
        say(f"  layer.head that vary from text to text: {', '.join(doubtful)}")
    for factor in FACTORS:
        cheapest = [
            min(tokens for tokens in head.longer[factor].values() if tokens is not None)
            for head in found.heads
        ]
        say(
            f"  at {factor} times the context, extrapolated: median head "
            f"{median(cheapest):.0f} of {factor * found.context} tokens"
        )
    if question.stored is not None or question.loaded().dtype.itemsize < 4:
        for remark in rounding_remarks(question.captures()[0]):
            say(f"  {remark}")
    if written is not None:
        say(f"budget file  {written}")


def _planned(question: Question, who: WorkerOptions, json: bool) -> Plan:
    """Plan every head here, or by several workers if there is enough for them to do."""
    few = len(question.layers) * question.heads <= FEW_HEADS and who.workers is None
    if who.cluster is None and (few or who.count == 1):
        with progress_bar("heads", shown=not json) as progress:
            return plan_budgets(
                question.captures(),
                question.terms,
                layers=question.layers,
                source=question.source,
                progress=progress,
            )
    from attnlimit.reproduce.plan_run import plan_by_workers

    with run_view("heads", shown=not json) as status:
        return plan_by_workers(question, who.executor(), status, near=who.near)
