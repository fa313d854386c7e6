"""`attnlimit plan`: how few keys are enough for a model, or for each of its heads by itself."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from attnlimit.budgets import Plan, plan_budgets
from attnlimit.budgets.longer import FACTORS
from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.options import AsJson, html
from attnlimit.cli.output_plan import (
    OutputOptions,
    measured_plan,
    quick_plan,
    rivalled_plan,
    write_plan_page,
)
from attnlimit.cli.show import print_json, print_table, progress_bar, run_view, say
from attnlimit.cli.where import WorkerOptions
from attnlimit.errors import BadInput
from attnlimit.models import OutputPlan
from attnlimit.models.heads.rounding import rounding_remarks
from attnlimit.survey import Question

MANY_SCORES = 1 << 30
"""Scores of a capture from which workers save more than it takes to start them."""
FEW_HEADS = 16
"""Heads up to which starting processes takes longer than what they save."""


def plan(
    asked: ModelOptions,
    whole: OutputOptions,
    who: WorkerOptions,
    heads: Annotated[
        bool, typer.Option("--heads", help="Budget each head by itself, too; see --epsilon.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Plan only: measure nothing.")] = False,
    budget: Annotated[
        Path | None, typer.Option(help="Write the plan here; with --heads their budgets.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Measure other schemes too, and write a page here.", callback=html),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of probes and draws; a capture has its own.")] = 0,
    json: AsJson = False,
) -> None:
    """Say how few keys keep a model's output, and measure that on a passage not planned on.

    The target is --kl, --perplexity or --cosine; without one, 0.01 nats, or a cosine of 0.999 where
    the model predicts no next token.

    With --heads every head is budgeted by itself, too. With --epsilon, --delta, --quantile or
    --layer and no target, heads alone are.

    A capture's folder has no model to run: a target is planned for and not measured, and without a
    target heads are budgeted.
    """
    if quick and page is not None:
        raise BadInput("A page shows what was measured: leave out --quick, or --page.")
    question = asked.question(output=whole.goal(), seed=seed)
    stored = asked.capture is not None  # which has no model to run
    single = heads or ((asked.single or stored) and not whole.asked)
    said: dict[str, Any] = {}
    if not single or (heads and (whole.asked or not stored)):
        said = _show_output(question, who, None if heads else budget, page, quick, json)
    if single:
        found = _show_heads(question, who, budget, json)
        said = {**found, **({"output": said} if said else {})}
    if json:
        print_json(said)


def _show_output(
    question: Question,
    who: WorkerOptions,
    file: Path | None,
    page: Path | None,
    quick: bool,
    json: bool,
) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    if quick or (question.stored is not None and page is None):
        found = _output_planned(question, who, json)
        lines = str(found).splitlines()
    else:
        survey = (measured_plan if page is None else rivalled_plan)(question, shown=not json)
        found, answer, lines = survey.output_plan, survey.answer, survey.says()
        measured = {
            "measured": answer.measured,
            "measured_stderr": answer.measured_stderr,
            "unseen": answer.unseen,
            "page": None if page is None else write_plan_page(survey, page),
        }
    written = found.write(file) if file is not None else None
    if not json:
        say(*lines)
        if page is not None:
            say(f"page  {page.resolve()}")
        if written is not None:
            again = f"attnlimit try --model {question.model} --plan {written} --text YOUR_TEXT.txt"
            say(f"plan  {written}; measure it on a text of your own: {again}")
        elif question.stored is not None:
            say("  To measure it the model must run: add --budget plan.json, and then")
            say(f"  attnlimit try --model {question.model} --plan plan.json --text YOUR_TEXT.txt")
    return {**found.to_dict(), **measured, "file": written}


def _output_planned(question: Question, who: WorkerOptions, json: bool) -> OutputPlan:
    """Plan for the output here, or by workers that read a capture's layers, if those are large."""
    scores = len(question.passages) * len(question.layers) * question.heads * question.tokens**2
    few = scores < MANY_SCORES and who.workers is None
    if question.stored is None or (who.cluster is None and (few or who.count == 1)):
        return quick_plan(question, shown=not json)
    from attnlimit.reproduce.output_plan_run import output_plan_by_workers

    with run_view("layers", shown=not json) as status:
        return output_plan_by_workers(question, who.executor(), status)


def _show_heads(
    question: Question, who: WorkerOptions, file: Path | None, json: bool
) -> dict[str, Any]:
    found = _planned(question, who, json)
    written = found.write(file) if file is not None else None
    if not json:
        print_table(found.to_frame(), f"{question.model}: certified tokens, by scheme")
        say(*_about_heads(found))
        if question.stored is not None or question.loaded().dtype.itemsize < 4:
            for remark in rounding_remarks(question.captures()[0]):
                say(f"  {remark}")
        if written is not None:
            say(f"budget file  {written}")
    return {**found.to_dict(), "file": written}


def _about_heads(found: Plan) -> list[str]:
    lines = [str(found)]
    stuck = [head for head in found.heads if not head.kind.thinnable]
    if stuck:
        names = ", ".join(f"{head.layer}.{head.head} ({head.kind.name})" for head in stuck)
        lines.append(f"  layer.head that half of the tokens are not enough for: {names}")
    doubtful = [f"{head.layer}.{head.head}" for head in found.heads if head.varies]
    if doubtful:
        lines.append(f"  layer.head that vary from text to text: {', '.join(doubtful)}")
    for factor in FACTORS:
        cheapest = [
            min(tokens for tokens in head.longer[factor].values() if tokens is not None)
            for head in found.heads
        ]
        lines.append(
            f"  at {factor} times the context, extrapolated: median head "
            f"{median(cheapest):.0f} of {factor * found.context} tokens"
        )
    return lines


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
