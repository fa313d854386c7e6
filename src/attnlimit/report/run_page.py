"""Pages of experiments, and of single figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnlimit.picture import FigureSpec, Series
from attnlimit.report.page import asset, document, escape, provenance, scrolled, table

MOST_ROWS = 200


@dataclass(frozen=True)
class RunContent:
    """Content of the page of a run."""

    record: dict[str, Any]  # its run.json
    title: str
    finding: str  # the result in one sentence
    command: str  # that runs it again
    figure: FigureSpec
    table: pd.DataFrame
    remarks: list[str]


def run_page(run: RunContent) -> str:
    """Return the page of a run."""
    rows = run.table
    settings = pd.DataFrame(
        [(key, str(value)[:200]) for key, value in run.record["config"].items()],
        columns=["setting", "value"],
    )
    remarks = "".join(f"<p>{escape(text)}</p>" for text in run.remarks)
    more = f"<p class='note'>The first {MOST_ROWS} of {len(rows)} rows.</p>"
    body = (
        f"<header><p class='eyebrow'>attnlimit · {escape(run.record['experiment'])}</p>"
        f"<h1>{escape(run.title)}</h1>"
        f"<p class='lead'>{escape(run.finding)}</p></header><main>"
        f"{figure_html(run.figure)}"
        f"<section><h2>Numbers</h2>{scrolled(table(rows.head(MOST_ROWS)), 'Numbers')}"
        f"{more if len(rows) > MOST_ROWS else ''}{remarks}</section>"
        f"<section><h2>Run it again</h2><pre>{escape(run.command)}</pre>"
        f"<p class='note'>{provenance(run.record)}</p>"
        f"<details><summary>Settings</summary>{scrolled(table(settings), 'Settings')}</details>"
        "</section></main><footer></footer>"
    )
    return figure_document(run.title, body, run.figure)


def figure_page(figure: FigureSpec) -> str:
    """Return a page with nothing but a figure."""
    body = f"<header><h1>{escape(figure.title)}</h1></header><main>{figure_html(figure)}</main>"
    return figure_document(figure.title, body, figure)


def figure_html(figure: FigureSpec, heading: str = "Figure", more: str = "") -> str:
    """Places for the panels of a figure, and `more` HTML below them."""
    panels = "".join(
        f"<div class='plot'><h3>{escape(panel.title)}</h3>"
        f"<div class='canvas' id='figure-0-{k}'></div></div>"
        for k, panel in enumerate(figure.panels)
    )
    caption = f"<p class='note'>{escape(figure.below)}</p>" if figure.below else ""
    return (
        f"<section><h2>{escape(heading)}</h2><div class='plots'>{panels}</div>{caption}{more}"
        "</section>"
    )


def figure_document(title: str, body: str, figure: FigureSpec) -> str:
    """Return a page whose script draws a figure in the places of its `body`."""
    return document(title, body, figure_data(figure), [asset("run.js")])


def figure_data(figure: FigureSpec) -> dict[str, Any]:
    """Return what the script draws a figure from."""
    panels = [
        vars(panel) | {"series": [_coloured(series, figure) for series in panel.series]}
        for panel in figure.panels
    ]
    return {"figures": [{"panels": panels}]}


def _coloured(series: Series, figure: FigureSpec) -> dict[str, Any]:
    """Return a series with its colour: `slot` of the named ones, `shade` of a scale, or neither."""
    colour = figure.colours.get(series.group)
    whole = isinstance(colour, int)
    chosen = {"slot": colour if whole else None, "shade": None if whole else colour}
    return vars(series) | {"group": str(series.group)} | chosen
