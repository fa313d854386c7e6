"""HTML pages: one file that needs no network, with every text escaped.

Pages of experiments, of single figures and of shaded texts are made here; other modules have those
of plans and bags.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
from plotly.offline import get_plotlyjs

import attnlimit
from attnlimit.checks import Array
from attnlimit.files import write_atomically
from attnlimit.picture import FigureSpec, Series
from attnlimit.result import cell, plain

DIGITS = 5
"""Significant digits of embedded data."""

# Nothing may be fetched: a page that tries is stopped by the browser.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)


def escape(value: Any) -> str:
    """Text for the inside of an element or an attribute."""
    return html.escape(str(value), quote=True)


def asset(name: str) -> str:
    """Return a template, style sheet or script that comes with the package."""
    return files("attnlimit.report").joinpath("html").joinpath(name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(plain(data, DIGITS), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def fill(template: str, **parts: str) -> str:
    """Fill a template from the package; the parts must be HTML already."""
    return Template(asset(template)).substitute(parts)


def document(title: str, body: str, data: Any = None, scripts: Sequence[str] = ()) -> str:
    """Return the whole page; with code of scripts that draw `data`, Plotly is embedded once."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="attnlimit {escape(attnlimit.__version__)}">\n'
        f"<title>{escape(title)}</title>\n<style>{asset('page.css')}</style>\n</head>\n<body>\n"
        f"{body}\n{_drawing(data, scripts) if scripts else ''}</body>\n</html>\n"
    )


def _drawing(data: Any, scripts: Sequence[str]) -> str:
    library = get_plotlyjs().replace("</script", "<\\/script")
    code = "\n".join(f"<script>{script}</script>" for script in (asset("theme.js"), *scripts))
    return (
        "<noscript><p class='warning'>The figures of this page need JavaScript; nothing is "
        "fetched from any network.</p></noscript>\n"
        f'<script type="application/json" id="data">{embedded(data)}</script>\n'
        f'{code}\n<script id="plotly">{library}</script>\n'
        f"<script>{asset('ready.js')}</script>\n"
    )


def table(frame: pd.DataFrame) -> str:
    """A table with text on the left and numbers on the right of their columns."""
    looks = [
        "" if pd.api.types.is_numeric_dtype(frame[column]) else " class=word"
        for column in frame.columns
    ]

    def row(tag: str, values: Iterable[Any]) -> str:
        places = zip(values, looks, strict=True)
        cells = (f"<{tag}{look}>{escape(cell(value))}</{tag}>" for value, look in places)
        return f"<tr>{''.join(cells)}</tr>"

    rows = "".join(row("td", values) for values in frame.itertuples(index=False))
    return f"<table><thead>{row('th', frame.columns)}</thead><tbody>{rows}</tbody></table>"


def cards_html(cards: Iterable[tuple[str, str]]) -> str:
    """Cards of a number and its meaning."""
    return "".join(
        f"<li><strong>{escape(number)}</strong><span>{escape(meaning)}</span></li>"
        for number, meaning in cards
    )


def command_html(command: str, meaning: str) -> str:
    """A command with a button that copies it, and its meaning."""
    return (
        f'<li><p>{escape(meaning)}</p><div class="command"><code>{escape(command)}</code>'
        "</div></li>"
    )


def scrolled(content: str, label: str) -> str:
    """Let wide content, which must be HTML already, scroll by itself, by keyboard too."""
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
    return f"{region}{content}</div>"


def docs_link(name: str, label: str, beside: Path) -> str:
    """Link to a page of the documentation, or its name where there is no checkout."""
    page = Path(attnlimit.__file__).resolve().parents[2] / "docs" / name
    if not page.is_file():
        return f"<code>docs/{escape(name)}</code>"
    target = Path(os.path.relpath(page, beside.resolve())).as_posix()
    return f'<a href="{escape(target)}">{escape(label)}</a>'


def provenance(record: dict[str, Any]) -> str:
    """Key, versions and seed of a run."""
    libraries = record.get("versions", {}).items()
    versions = ", ".join(f"{name} {version}" for name, version in libraries if name != "attnlimit")
    seed = record["config"].get("seed", 0)
    begins = f"Run {record['key'][:12]}, made" if "key" in record else "Made"
    return escape(
        f"{begins} {record.get('created', '')} by attnlimit "
        f"{record.get('version', '')} with {versions}; seed {seed}."
    )


def write_page(path: Path, text: str) -> Path:
    """Write a page, whole or not at all."""
    write_atomically(path, text.encode())
    return path


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


RED = (213, 94, 0)


def token_page(
    tokens: Sequence[str],
    influence: Array,
    *,
    title: str,
    source: str,
    notes: Sequence[str] = (),
) -> str:
    """Return a page with the text shaded by influence.

    Shading is by rank, so that a few extreme tokens do not leave the rest white.
    """
    rank = np.argsort(np.argsort(influence)) / max(len(influence) - 1, 1)
    spans: list[str] = []
    for token, share, value in zip(tokens, rank, influence, strict=True):
        text, glued = _word(token)
        gap = "" if glued or not spans else " "
        label = escape(f"{value:.4g}, above {share:.0%} of the tokens")
        spans.append(
            f'{gap}<span style="background:{_shade(float(share))}" title="{label}">'
            f"{escape(text)}</span>"
        )
    ramp = ", ".join(f"{_shade(share)} {share:.0%}" for share in (0.0, 0.5, 1.0))
    remarks = "".join(f" {escape(note)}." for note in notes)
    return document(
        title,
        f"""<header><h1>{escape(title)}</h1></header><main>
<p class="key">least influential <span class="ramp" style="background:linear-gradient(to right,
{ramp})"></span> most influential (point at a token for its number)</p>
<p class="passage" style="max-width:none;max-height:none">{"".join(spans)}</p></main>
<footer>Influence is |psi|, the first-order effect of a token on the mean output (attention it
receives is one part of it). {escape(source)}.{remarks}</footer>""",
    )


def _shade(share: float) -> str:
    return f"rgba{(*RED, round(0.85 * share**2, 3))}"


def _word(token: str) -> tuple[str, bool]:
    """A token's text and whether it continues the word before, in the usual tokenizer styles."""
    if token.startswith("##"):
        return token[2:], True
    for mark in ("\u0120", "\u2581"):  # byte-level BPE and SentencePiece mark a new word
        if token.startswith(mark):
            return token[1:] or " ", False
    if token in {"\u010a", "\n"}:
        return "\u21b5", True
    return token, len(token) == 1 and not token.isalnum()
