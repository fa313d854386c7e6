"""Pages of plans for bags: labelled bags needed, and instances of a bag to read."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from attnlimit.bags.instance_budget import InstanceBudget
from attnlimit.bags.planner import BagPlan
from attnlimit.picture import FigureSpec
from attnlimit.report.page import cards_html, escape, figure_document, figure_html, scrolled, table

MEANINGS = {
    "feature error": "distance of the pooled feature from the pooled feature over all instances, "
    "root mean square, over the spread of the bags' pooled features",
    "log-odds error": "root mean square change of the log-odds of a bag",
    "decision changed": "fraction of bags with another decision than with all instances",
    "signal drawn": "probability that at least one instance is read that would make its bag "
    "positive alone, in bags that are decided to be positive",
}


def plan_figure(plan: BagPlan) -> FigureSpec:
    """Learning curves: of the recommended pooling and its rival, and of all."""
    last = plan.advice[-1]
    two = (last.pooling, last.rival)
    every = dict.fromkeys((*two, *plan.pilot.poolings))  # in one order, so in one colour
    panels = (
        replace(plan.curves(two, two), title=f"{last.pooling} and {last.rival}"),
        replace(plan.curves(list(every), ()), title="all poolings"),
    )
    caption = (
        f"Points: cross-validated on the pilot of {plan.pilot.bags} bags; lines: predicted; bands: "
        "90 % intervals"
    )
    return FigureSpec("Error against labelled bags", panels, caption=caption)


def plan_page(plan: BagPlan, command: str, python: str = "") -> str:
    """Return the page of a plan; `command` makes it again, `python` fits the model."""
    figure, last = plan_figure(plan), plan.advice[-1]
    bags = last.bags if plan.enough is None else plan.enough
    error, _, interval = plan.format_error(*plan.predicted(last.pooling, bags)).partition(" (")
    wanted = "" if plan.target is None else f" for an error of {plan.target:.1%}"
    number = f"more than {last.bags}" if plan.enough is None else str(plan.enough)
    title = f"{number} labelled bags{'' if plan.enough is None else ' are enough'}{wanted}"
    if not last.settled and last.signal < 0.9:
        number, title = "unknown", "The pilot shows no clear signal yet"
    cards = [
        (number, f"labelled bags needed{wanted}"),
        (last.pooling, "recommended pooling"),
        (error, f"predicted error ({interval}" if interval else "predicted error"),
        (
            "> 0.99" if last.better > 0.99 else f"{last.better:.2f}",
            f"probability that it has a smaller error than {last.rival}",
        ),
        (f"{plan.guess:.1%}", "error of guessing the more frequent class"),
    ]
    answer, following = plan.headline(), plan.next_step()
    remarks = plan.remarks() if following in answer else [*plan.remarks(), following]
    notes = "".join(f"<p>{escape(text)}</p>" for text in remarks)
    use = f"<section><h2>Use it</h2><pre>{escape(python)}</pre></section>" if python else ""
    body = (
        "<header><p class='eyebrow'>attnlimit · plan for bags · "
        f"pilot of {plan.pilot.bags} labelled bags</p><h1>{escape(title)}</h1>"
        f"<p class='answer'>{escape(answer)}</p></header><main>"
        f"<section><ul class='cards'>{cards_html(cards)}</ul></section>"
        f"{figure_html(figure, figure.title)}"
        f"{use}<section><h2>Numbers</h2>{scrolled(table(plan.formatted()), 'Numbers')}</section>"
        f"<section><h2>What it is based on</h2>{notes}{_checks(plan)}</section>"
        "<section><h2>Instances that decide</h2><p class='note'>For a few bags of the pilot: "
        f"probability by {escape(plan.recommended)} that the bag is positive, and that a bag with "
        "this instance alone would be; trained on the whole pilot.</p>"
        f"{scrolled(table(plan.deciding.round(3)), 'Instances that decide')}</section>"
        f"<section><h2>Make this page again</h2><pre>{escape(command)}</pre></section>"
        "</main><footer></footer>"
    )
    return figure_document(title, body, figure)


def _checks(plan: BagPlan) -> str:
    if plan.estimate is None:
        return ""
    rows = [
        (check.assumption, "holds" if check.holds else f"fails: {check.meaning}", *check.shown)
        for check in plan.estimate.checks
    ]
    frame = pd.DataFrame(rows, columns=["assumption", "meaning", "measured", "expected"])
    return f"<div class='sentences'>{scrolled(table(frame), 'Assumptions of the theory')}</div>"


def instances_figure(budget: InstanceBudget) -> FigureSpec:
    """One panel for each quantity: lines predicted, points drawn."""
    quantities = budget.to_frame()["quantity"].unique()
    panels = [budget.panel(str(name)) for name in quantities]
    caption = "Lines: predicted by the samplers' laws; points: drawn"
    return FigureSpec("Errors against instances read", panels, columns=2, caption=caption)


def instances_page(budget: InstanceBudget, title: str, command: str) -> str:
    """Return the page of an instance budget."""
    figure, frame = instances_figure(budget), budget.to_frame()
    answers = "".join(f"<li>{escape(text)}.</li>" for text in budget.answers)
    limit = f"<h2>At most {budget.change:.3g} of the decisions changed</h2>" if answers else ""
    words = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(MEANINGS.get(name, ''))}</dd>"
        for name in frame["quantity"].unique()
    )
    scored = (
        "Every bag is scored by a pooling that was fitted without it."
        if budget.held_out
        else "Bags are scored by the given pooling."
    )
    body = (
        f"<header><p class='eyebrow'>attnlimit · bags instances</p><h1>{escape(title)}</h1>"
        f"<p>{budget.bags} bags, {budget.draws} draws of each. {scored}</p></header><main>"
        f"<section>{limit}<ul>{answers}</ul></section>{figure_html(figure)}"
        f"<section><h2>Quantities</h2><dl>{words}</dl></section>"
        f"<section><h2>Numbers</h2>{scrolled(table(frame), 'Numbers')}"
        "<p class='note'>stderr is over draws; bags_stderr is over bags, the deviation to expect "
        "on other bags of the same kind.</p></section>"
        f"<section><h2>Make this page again</h2><pre>{escape(command)}</pre></section>"
        "</main><footer></footer>"
    )
    return figure_document(title, body, figure)
