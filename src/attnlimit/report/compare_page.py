"""How do two runs differ? Their figures and numbers side by side, head by head where they match."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, FigureSpec, Panel, Series
from attnlimit.report.page import escape, provenance, scrolled, table
from attnlimit.report.run_page import Shown, figure_html, figures_document
from attnlimit.survey import Survey

Record = dict[str, Any]
Pair = tuple[str, str]
Named = tuple[str, pd.DataFrame]


def compare_runs(shown: tuple[Shown, Shown], names: Pair) -> str:
    """Return the page of two runs of one experiment, called `names` where nothing says more."""
    configs = [one.record["config"] for one in shown]
    labels = names
    if all("model" in config and "text" in config for config in configs):
        labels = _labels([(config["model"], config["text"]) for config in configs], names)
    if labels[0] == labels[1]:  # the same folder name at two places
        labels = f"{labels[0]} (first)", f"{labels[1]} (second)"
    numbers = [(label, one.table) for label, one in zip(labels, shown, strict=True)]
    changed = difference(shown[0].table, shown[1].table, labels)
    if changed is not None:
        numbers.insert(0, ("Difference", changed))
    records = shown[0].record, shown[1].record
    return _page(records, labels, "", [one.figure for one in shown], numbers)


def compare_surveys(
    records: tuple[Record, Record], surveys: tuple[Survey, Survey], names: Pair
) -> str:
    """Return the page of two models, two texts, or two settings of one model."""
    labels = _labels([(one.question.model, one.question.text) for one in surveys], names)
    frames = [one.heads.assign(share=one.heads.tokens / one.plan.context) for one in surveys]
    summary = [
        {"run": label, **_summary(frame, one)}
        for frame, one, label in zip(frames, surveys, labels, strict=True)
    ]
    parts = [
        f"more than {one['share of context']:.0%} of {one['context']} tokens in {one['run']}"
        for one in summary
    ]
    sentence = f"Half of the heads need {', and '.join(parts)}."
    panels = [
        _sorted(frames, labels, "share", "Tokens that heads need, sorted", "share of context"),
        _sorted(frames, labels, "horizon", "Horizon of heads, sorted", "horizon H"),
    ]
    numbers = [("Summary", pd.DataFrame(summary))]
    both = frames[0].merge(frames[1], on=["layer", "head"], suffixes=(" 1", " 2"))
    if len(both) == len(frames[0]) == len(frames[1]):
        panels += _by_head(both, labels)
        numbers.append(("Heads that differ most", _moved(both, labels)))
    return _page(records, labels, sentence, [FigureSpec("Two runs", tuple(panels))], numbers)


def _page(
    records: tuple[Record, Record],
    labels: Pair,
    sentence: str,
    figures: list[FigureSpec],
    numbers: list[Named],
) -> str:
    headings = labels if len(figures) > 1 else ("Figure",)
    sections = "".join(
        figure_html(figure, k, heading)
        for k, (figure, heading) in enumerate(zip(figures, headings, strict=True))
    )
    tables = "".join(
        f"<section><h2>{escape(label)}</h2>{scrolled(table(frame), label)}</section>"
        for label, frame in numbers
    )
    origin = "".join(f"<p class='note'>{provenance(record)}</p>" for record in records)
    body = (
        f"<header><p class='eyebrow'>attnlimit · compare {escape(records[0]['experiment'])}</p>"
        f"<h1>{escape(labels[0])} beside {escape(labels[1])}</h1>"
        f"{f'<p>{escape(sentence)}</p>' if sentence else ''}</header>"
        f"<main>{sections}{tables}<section><h2>Runs</h2>{origin}</section></main><footer></footer>"
    )
    return figures_document("attnlimit: two runs", body, figures)


def difference(first: pd.DataFrame, second: pd.DataFrame, labels: Pair) -> pd.DataFrame | None:
    """Return what differs between two tables whose rows are the same, the second minus the first.

    Rows are told apart by the columns that agree; nothing if the tables do not match row by row.
    """
    if list(first.columns) != list(second.columns) or len(first) != len(second):
        return None
    same = [name for name in first if first[name].equals(second[name])]
    shown = {name: first[name] for name in same}
    for name in (one for one in first if one not in same):
        values = [frame[name].map(_number) for frame in (first, second)]
        if any(column.isna().all() for column in values):
            continue
        for label, frame in zip(labels, (first, second), strict=True):
            shown[f"{name}, {label}"] = frame[name]
        shown[f"{name}, difference"] = values[1] - values[0]
    found = pd.DataFrame(shown)
    return found if len(found.columns) > len(same) else None


def _number(cell: Any) -> float:
    """Read a cell as a number, the first of "0.5 ± 0.1"; NaN if it is none."""
    try:
        return float(str(cell).partition("±")[0].strip(" !%"))
    except ValueError:
        return float("nan")


def _labels(asked: list[Pair], names: Pair) -> Pair:
    one, two = (f"{model} on {text.removeprefix('wikipedia:')}" for model, text in asked)
    return names if one == two else (one, two)


def _summary(frame: pd.DataFrame, survey: Survey) -> dict[str, Any]:
    memory = survey.plan.memory()
    return {
        "heads": len(frame),
        "context": survey.plan.context,
        "tokens, median": frame.tokens.median(),
        "share of context": frame.share.median(),
        "horizon, median": frame.horizon.median(),
        "not thinnable": int((~frame.thinnable).sum()),
        "read by a query": memory.read / memory.full,
        "stored": memory.stored / memory.full,
    }


def _sorted(frames: list[pd.DataFrame], labels: Pair, key: str, title: str, y_label: str) -> Panel:
    series = []
    for frame, label in zip(frames, labels, strict=True):
        shares = (np.arange(len(frame)) + 0.5) / len(frame)
        series.append(Series(shares, np.sort(frame[key]), "line", label, group=label))
    scale = "log" if key == "horizon" else "linear"
    return Panel(title, "share of heads", y_label, tuple(series), x_scale="linear", y_scale=scale)


def _by_head(both: pd.DataFrame, labels: Pair) -> list[Panel]:
    panels = []
    for key, name in (("share", "Tokens needed / context"), ("horizon", "Horizon H")):
        one, two = both[f"{key} 1"], both[f"{key} 2"]
        ends = [min(one.min(), two.min()), max(one.max(), two.max())]
        series = (
            Series(ends, ends, "dotted", "equal", REFERENCE),
            Series(one, two, "points", "heads", group="heads"),
        )
        scale = "log" if key == "horizon" else "linear"
        panels.append(Panel(f"{name}, head by head", *labels, series, scale, scale))
    return panels


def _moved(both: pd.DataFrame, labels: Pair) -> pd.DataFrame:
    both = both.assign(difference=both["tokens 2"] - both["tokens 1"])
    order = both.difference.abs().sort_values(ascending=False).index[:20]
    columns = ["layer", "head", "tokens 1", "tokens 2", "difference", "kind 1", "kind 2"]
    names = {f"{key} {k + 1}": f"{key}, {labels[k]}" for key in ("tokens", "kind") for k in (0, 1)}
    return both.loc[order, columns].rename(columns=names)
