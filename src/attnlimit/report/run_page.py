"""What does a person see of an experiment? A page with its figure, its table and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnlimit.picture import FigureSpec, Series
from attnlimit.report.page import document, escape, provenance, scrolled, table

MOST_ROWS = 200


@dataclass(frozen=True)
class Shown:
    """What is shown of a run that is a figure, a table and remarks."""

    record: dict[str, Any]  # its run.json
    title: str
    command: str  # what to type to have it again
    figure: FigureSpec
    table: pd.DataFrame
    remarks: list[str]


def run_page(shown: Shown) -> str:
    """Return the page of a run."""
    config, found = shown.record["config"], shown.table
    settings = pd.DataFrame(
        [(key, str(value)[:200]) for key, value in config.items()], columns=["setting", "value"]
    )
    remarks = "".join(f"<p>{escape(text)}</p>" for text in shown.remarks)
    more = f"<p class='note'>The first {MOST_ROWS} of {len(found)} rows.</p>"
    body = (
        f"<header><p class='eyebrow'>attnlimit · {escape(shown.record['experiment'])}</p>"
        f"<h1>{escape(shown.title)}</h1>{remarks}</header><main>"
        f"{figure_html(shown.figure, 0)}"
        f"<section><h2>Numbers</h2>{scrolled(table(found.head(MOST_ROWS)), 'Numbers')}"
        f"{more if len(found) > MOST_ROWS else ''}</section>"
        f"<section><h2>Do it again</h2><pre>{escape(shown.command)}</pre>"
        f"<p class='note'>{provenance(shown.record)}</p>"
        f"<details><summary>Settings</summary>{scrolled(table(settings), 'Settings')}</details>"
        "</section></main><footer></footer>"
    )
    return figures_document(shown.title, body, [shown.figure])


def figure_page(figure: FigureSpec) -> str:
    """Return a page with nothing but a figure."""
    body = f"<header><h1>{escape(figure.title)}</h1></header><main>{figure_html(figure, 0)}</main>"
    return figures_document(figure.title, body, [figure])


def figure_html(figure: FigureSpec, number: int, heading: str = "Figure") -> str:
    """Places for the panels of figure `number`."""
    panels = "".join(
        f"<div class='plot'><h3>{escape(panel.title)}</h3>"
        f"<div class='canvas' id='figure-{number}-{k}'></div></div>"
        for k, panel in enumerate(figure.panels)
    )
    caption = f"<p class='note'>{escape(figure.below)}</p>" if figure.below else ""
    return (
        f"<section><h2>{escape(heading)}</h2><div class='plots'>{panels}</div>{caption}</section>"
    )


def figures_document(title: str, body: str, figures: Sequence[FigureSpec]) -> str:
    """Return a page whose script draws figures in the places of its `body`."""
    panels = [
        [
            vars(panel) | {"series": [_coloured(one, figure) for one in panel.series]}
            for panel in figure.panels
        ]
        for figure in figures
    ]
    return document(title, body, {"figures": [{"panels": one} for one in panels]}, ["run.js"])


def _coloured(series: Series, figure: FigureSpec) -> dict[str, Any]:
    """Return a series with its colour: `slot` of the named ones, `shade` of a scale, or neither."""
    colour = figure.colours.get(series.group)
    whole = isinstance(colour, int)
    chosen = {"slot": colour if whole else None, "shade": None if whole else colour}
    return vars(series) | {"group": str(series.group)} | chosen
