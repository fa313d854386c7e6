"""What does a person see of any run? Its page: built for its kind, or its figure and table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.report.model_page import model_page
from attnlimit.report.opened import opened
from attnlimit.report.page import document, escape, provenance, scrolled, table, write_page
from attnlimit.report.spec import FigureSpec, Panel
from attnlimit.reproduce import load
from attnlimit.runs import RunFolder

MOST_ROWS = 200


def write_report(folder: RunFolder, target: Path | None = None) -> Path:
    """Build the page of a finished run at `target`, `report.html` in its folder by default."""
    path = folder.path / "report.html" if target is None else target
    with opened(folder) as (record, curves):
        if record["experiment"] == "model":
            page = model_page(record, curves, path.parent)
        else:
            page = figure_page(record, curves)
    return write_page(path, page)


def figure_page(record: dict[str, Any], curves: pd.DataFrame) -> str:
    """Return the page of a run that is a figure, a table and remarks."""
    name, config = record["experiment"], record["config"]
    experiment = load(name)
    figure = experiment.figure(config, curves)
    found = experiment.table(config, curves)
    settings = pd.DataFrame(
        [(key, str(value)[:200]) for key, value in config.items()], columns=["setting", "value"]
    )
    remarks = "".join(f"<p>{escape(text)}</p>" for text in experiment.remarks(config, curves))
    more = f"<p class='note'>The first {MOST_ROWS} of {len(found)} rows.</p>"
    body = (
        f"<header><p class='eyebrow'>attnlimit · {escape(name)}</p>"
        f"<h1>{escape(experiment.title)}</h1>{remarks}</header><main>"
        f"{figure_html(figure, 0)}"
        f"<section><h2>Numbers</h2>{scrolled(table(found.head(MOST_ROWS)), 'Numbers')}"
        f"{more if len(found) > MOST_ROWS else ''}</section>"
        f"<section><h2>Do it again</h2><pre>attnlimit reproduce {escape(name)}"
        f" --seed {escape(config.get('seed', 0))}</pre><p class='note'>{provenance(record)}</p>"
        f"<details><summary>Settings</summary>{scrolled(table(settings), 'Settings')}</details>"
        "</section></main><footer></footer>"
    )
    return document(experiment.title, body, {"figures": [figure_data(figure)]}, ["run.js"])


def figure_html(figure: FigureSpec, number: int) -> str:
    """Places for the panels of figure `number`."""
    panels = "".join(
        f"<div class='plot'><h3>{escape(panel.title)}</h3>"
        f"<div class='canvas' id='figure-{number}-{k}'></div></div>"
        for k, panel in enumerate(figure.panels)
    )
    caption = f"<p class='note'>{escape(figure.caption)}</p>" if figure.caption else ""
    return f"<section><h2>Figure</h2><div class='plots'>{panels}</div>{caption}</section>"


def figure_data(figure: FigureSpec) -> dict[str, Any]:
    """A figure as the page's script draws it."""
    return {"panels": [_panel(panel) for panel in figure.panels]}


def _panel(panel: Panel) -> dict[str, Any]:
    series = [
        {
            "x": np.asarray(one.x, dtype=float),
            "y": None if one.style == "band" else np.asarray(one.y, dtype=float),
            "style": one.style,
            "label": one.label,
            "group": str(one.group),
            "error": None if one.error is None else np.asarray(one.error, dtype=float),
            "lower": None if one.lower is None else np.asarray(one.lower, dtype=float),
            "upper": None if one.upper is None else np.asarray(one.upper, dtype=float),
        }
        for one in panel.series
    ]
    return {
        "x_label": panel.x_label,
        "y_label": panel.y_label,
        "x_scale": panel.x_scale,
        "y_scale": panel.y_scale,
        "x_limits": panel.x_limits,
        "y_limits": panel.y_limits,
        "series": series,
    }
