"""HTML pages: one file that needs no network, with every text escaped."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
from plotly.offline import get_plotlyjs

import attnlimit
from attnlimit.files import write_atomically
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
