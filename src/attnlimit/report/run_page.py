"""Pages of experiments: one run, or two runs of one experiment side by side."""

from __future__ import annotations

from collections.abc import Sequence
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
    return figures_document(run.title, body, [run.figure])


def comparison_page(runs: Sequence[RunContent], names: Sequence[str]) -> str:
    """Return the page of two runs of one experiment, called by `names`, or by model and text."""
    configs = [run.record["config"] for run in runs]
    labels = list(names)
    if all("model" in config and "text" in config for config in configs):
        named = [
            f"{config['model']} on {config['text'].removeprefix('wikipedia:')}"
            for config in configs
        ]
        labels = labels if named[0] == named[1] else named
    if labels[0] == labels[1]:  # the same folder name at two places
        labels = [f"{labels[0]} (first)", f"{labels[1]} (second)"]
    tables = [(label, run.table) for label, run in zip(labels, runs, strict=True)]
    changed = difference(tables[0], tables[1])
    if changed is not None:
        tables.insert(0, ("Difference", changed))
    figures = "".join(figure_html(run.figure, k, labels[k]) for k, run in enumerate(runs))
    numbers = "".join(
        f"<section><h2>{escape(label)}</h2>{scrolled(table(frame), label)}</section>"
        for label, frame in tables
    )
    origin = "".join(f"<p class='note'>{provenance(run.record)}</p>" for run in runs)
    body = (
        "<header><p class='eyebrow'>attnlimit · compare "
        f"{escape(runs[0].record['experiment'])}</p>"
        f"<h1>{escape(labels[0])} beside {escape(labels[1])}</h1></header>"
        f"<main>{figures}{numbers}<section><h2>Runs</h2>{origin}</section></main><footer></footer>"
    )
    return figures_document("attnlimit: two runs", body, [run.figure for run in runs])


def difference(
    first: tuple[str, pd.DataFrame], second: tuple[str, pd.DataFrame]
) -> pd.DataFrame | None:
    """Return what differs between two labelled tables, the second minus the first.

    Columns that agree identify the rows; None if the tables do not match row by row.
    """
    before, after = first[1], second[1]
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        return None
    same = [name for name in before if before[name].equals(after[name])]
    shown = {name: before[name] for name in same}
    for name in (column for column in before if column not in same):
        values = [frame[name].map(_number) for frame in (before, after)]
        if any(column.isna().all() for column in values):
            continue
        shown |= {f"{name}, {label}": frame[name] for label, frame in (first, second)}
        shown[f"{name}, difference"] = values[1] - values[0]
    return pd.DataFrame(shown) if len(shown) > len(same) else None


def _number(cell: Any) -> float:
    """Read a cell as a number, the first of "0.5 ± 0.1"; NaN if it is none."""
    try:
        return float(str(cell).partition("±")[0].strip(" !%"))
    except ValueError:
        return float("nan")


def figure_page(figure: FigureSpec) -> str:
    """Return a page with nothing but a figure."""
    body = f"<header><h1>{escape(figure.title)}</h1></header><main>{figure_html(figure)}</main>"
    return figures_document(figure.title, body, [figure])


def figure_html(figure: FigureSpec, number: int = 0, heading: str = "Figure") -> str:
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
            vars(panel) | {"series": [_coloured(series, figure) for series in panel.series]}
            for panel in figure.panels
        ]
        for figure in figures
    ]
    data = {"figures": [{"panels": content} for content in panels]}
    return document(title, body, data, [asset("run.js")])


def _coloured(series: Series, figure: FigureSpec) -> dict[str, Any]:
    """Return a series with its colour: `slot` of the named ones, `shade` of a scale, or neither."""
    colour = figure.colours.get(series.group)
    whole = isinstance(colour, int)
    chosen = {"slot": colour if whole else None, "shade": None if whole else colour}
    return vars(series) | {"group": str(series.group)} | chosen
