"""What does a person see of a plan for bags? The answer, its curves, and what it stands on."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.report.page import escape, scrolled, table
from attnlimit.report.run_page import figure_html, figures_document
from attnlimit.sparse.bags.plan import BagPlan
from attnlimit.sparse.bags.sentences import (
    next_step,
    recommendation,
    remarks,
    said,
    spoken,
)

TITLE = "Which pooling, and how many labelled bags"


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
    return FigureSpec(TITLE, panels, caption=caption)


def plan_page(plan: BagPlan, telling: pd.DataFrame, command: str) -> str:
    """Return the page of a plan; `telling` are instances of a few bags, `command` what made it."""
    figure = plan_figure(plan)
    last = plan.advice[-1]
    error, _, interval = said(plan, *plan.predicted(last.pooling, last.bags)).partition(" (")
    cards = [
        (last.pooling, f"with {last.bags} labelled bags"),
        (error, f"error predicted ({interval}" if interval else "error predicted"),
        (
            "> 0.99" if last.better > 0.99 else f"{last.better:.2f}",
            f"probability that it errs less than {last.rival}",
        ),
        (f"{plan.guess:.1%}", "error of guessing the more frequent class"),
    ]
    shown = "".join(
        f"<li><strong>{escape(a)}</strong><span>{escape(b)}</span></li>" for a, b in cards
    )
    advice, following = recommendation(plan), next_step(plan)
    stands_on = remarks(plan) if following in advice else [*remarks(plan), following]
    notes = "".join(f"<p>{escape(text)}</p>" for text in stands_on)
    body = (
        "<header><p class='eyebrow'>attnlimit · plan for bags · "
        f"{plan.pilot.bags} labelled bags</p><h1>{escape(TITLE)}</h1>"
        f"<p class='answer'>{escape(advice)}</p></header><main>"
        f"<section><ul class='cards'>{shown}</ul></section>{figure_html(figure, 0)}"
        f"<section><h2>Numbers</h2>{scrolled(table(spoken(plan)), 'Numbers')}</section>"
        f"<section><h2>What it stands on</h2>{notes}{_checks(plan)}</section>"
        f"<section><h2>Instances that tell</h2><p class='note'>In each of a few bags of the pilot, "
        f"how sure {escape(plan.recommended)} is that the bag is positive, and that a bag with "
        f"this instance alone would be; trained on the whole pilot.</p>"
        f"{scrolled(table(telling.round(3)), 'Instances that tell')}</section>"
        f"<section><h2>Do it again, and use it</h2><pre>{escape(command)}</pre>"
        f"<pre>{escape(plan.estimator)}</pre></section></main><footer></footer>"
    )
    return figures_document(TITLE, body, [figure])


def _checks(plan: BagPlan) -> str:
    if plan.estimate is None:
        return ""
    rows = [
        (one.assumption, "holds" if one.holds else f"fails: {one.meaning}", *one.shown)
        for one in plan.estimate.checks
    ]
    frame = pd.DataFrame(rows, columns=["assumption", "what it means", "found", "expected"])
    return f"<div class='sentences'>{scrolled(table(frame), 'Assumptions of the theory')}</div>"
