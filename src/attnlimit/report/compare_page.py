"""How do two runs differ? Their figures and numbers side by side, head by head where they match."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.report.opened import opened
from attnlimit.report.page import document, escape, provenance, scrolled, table, write_page
from attnlimit.report.run_page import figure_data, figure_html
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce import load
from attnlimit.reproduce.model import plan_of
from attnlimit.runs import RunFolder


@dataclass(frozen=True)
class _Side:
    """What one run brings to a comparison."""

    record: dict[str, Any]
    figures: list[FigureSpec]
    table: pd.DataFrame  # of a model: its heads
    summary: dict[str, Any]


def write_comparison(first: RunFolder, second: RunFolder, target: Path) -> Path:
    """Write the page that compares two finished runs of one experiment."""
    folders = [first, second]
    names = [folder.record()["experiment"] for folder in folders]
    if names[0] != names[1]:
        raise BadInput(
            f"Only runs of one kind can be compared; these are {names[0]!r} and {names[1]!r}."
        )
    sides = [_side(folder) for folder in folders]
    labels = _labels([side.record for side in sides], folders)
    sentence = ""
    if names[0] == "model":
        figures, numbers = _models(sides, labels)
        sentence = f"<p>{escape(_says(sides, labels))}</p>"
    else:
        figures = [figure for side in sides for figure in side.figures]
        numbers = [(label, side.table) for label, side in zip(labels, sides, strict=True)]
    sections = "".join(figure_html(figure, k) for k, figure in enumerate(figures))
    tables = "".join(
        f"<section><h2>{escape(label)}</h2>{scrolled(table(frame), label)}</section>"
        for label, frame in numbers
    )
    origin = "".join(f"<p class='note'>{provenance(side.record)}</p>" for side in sides)
    body = (
        f"<header><p class='eyebrow'>attnlimit · compare {escape(names[0])}</p>"
        f"<h1>{escape(labels[0])} beside {escape(labels[1])}</h1>{sentence}</header>"
        f"<main>{sections}{tables}<section><h2>Runs</h2>{origin}</section></main><footer></footer>"
    )
    data = {"figures": [figure_data(figure) for figure in figures]}
    return write_page(target, document("attnlimit: two runs", body, data, ["run.js"]))


def _side(folder: RunFolder) -> _Side:
    with opened(folder) as (record, curves):
        if record["experiment"] != "model":
            experiment, config = load(record["experiment"]), record["config"]
            found = experiment.table(config, curves)
            return _Side(record, [experiment.figure(config, curves)], found, {})
        plan = plan_of(record["config"], curves)
        horizon = curves[curves.part == "horizon"][["layer", "head", "value"]]
        frame = plan.to_frame().merge(horizon.rename(columns={"value": "horizon"}))
        frame = frame.assign(share=frame.tokens / plan.context)
        memory = plan.memory()
        summary = {
            "heads": len(frame),
            "context": plan.context,
            "tokens, median": frame.tokens.median(),
            "share of context": frame.share.median(),
            "horizon, median": frame.horizon.median(),
            "not thinnable": int((~frame.thinnable).sum()),
            "read by a query": memory.read / memory.full,
            "stored": memory.stored / memory.full,
        }
        return _Side(record, [], frame, summary)


def _sorted(
    frames: list[pd.DataFrame], labels: list[str], key: str, title: str, y_label: str
) -> Panel:
    series = tuple(
        Series(
            (np.arange(len(frame)) + 0.5) / len(frame), np.sort(frame[key]), "line", label,
            group=label,
        )
        for frame, label in zip(frames, labels, strict=True)
    )  # fmt: skip
    scale = "log" if key == "horizon" else "linear"
    return Panel(title, "share of heads", y_label, series, x_scale="linear", y_scale=scale)


def _says(sides: list[_Side], labels: list[str]) -> str:
    parts = [
        f"{side.summary['share of context']:.0%} of {side.summary['context']} tokens in {label}"
        for side, label in zip(sides, labels, strict=True)
    ]
    return f"Half of the heads need more than {parts[0]}, and more than {parts[1]}."


def _labels(records: list[dict[str, Any]], folders: list[RunFolder]) -> list[str]:
    configs = [record["config"] for record in records]
    if all("model" in config and "text" in config for config in configs):
        found = [f"{c['model']} on {c['text'].removeprefix('wikipedia:')}" for c in configs]
        if found[0] != found[1]:
            return found
    return [folder.path.name for folder in folders]


def _models(
    sides: list[_Side], labels: list[str]
) -> tuple[list[FigureSpec], list[tuple[str, pd.DataFrame]]]:
    frames = [side.table for side in sides]
    rows = [{"run": label, **side.summary} for label, side in zip(labels, sides, strict=True)]
    panels = [
        _sorted(frames, labels, "share", "Tokens that heads need, sorted", "share of context"),
        _sorted(frames, labels, "horizon", "Horizon of heads, sorted", "horizon H"),
    ]
    numbers = [("Summary", pd.DataFrame(rows))]
    both = frames[0].merge(frames[1], on=["layer", "head"], suffixes=(" 1", " 2"))
    if len(both) == len(frames[0]) == len(frames[1]):
        for key, name in (("share", "Tokens needed / context"), ("horizon", "Horizon H")):
            one, two = both[f"{key} 1"], both[f"{key} 2"]
            ends = [min(one.min(), two.min()), max(one.max(), two.max())]
            series = (
                Series(ends, ends, "dotted", "equal", group="equal"),
                Series(one, two, "points", "heads", group="heads"),
            )
            scale = "log" if key == "horizon" else "linear"
            panels.append(
                Panel(f"{name}, head by head", labels[0], labels[1], series, scale, scale)
            )
        both["difference"] = both["tokens 2"] - both["tokens 1"]
        moved = both.reindex(both.difference.abs().sort_values(ascending=False).index)[
            ["layer", "head", "tokens 1", "tokens 2", "difference", "kind 1", "kind 2"]
        ]
        names = {
            f"{key} {k + 1}": f"{key}, {labels[k]}" for key in ("tokens", "kind") for k in (0, 1)
        }
        numbers.append(("Heads that differ most", moved.head(20).rename(columns=names)))
    return [FigureSpec("Two runs", tuple(panels))], numbers
