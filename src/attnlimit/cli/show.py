"""How do commands print? Tables for people, JSON for programs, a progress bar for patience."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from attnlimit.plain import cell, plain


def console() -> Console:
    """Where people read; wide enough for a table when it is not a terminal."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=160)


def print_table(frame: pd.DataFrame, title: str = "") -> None:
    """Print a table with numbers aligned and rounded to what can be read."""
    said = Text(printable(title)) if title else None
    table = Table(title=said, title_justify="left", header_style="bold")
    for place, column in enumerate(frame.columns):
        numeric = pd.api.types.is_numeric_dtype(frame.iloc[:, place])
        table.add_column(Text(printable(column)), justify="right" if numeric else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*[Text(printable(cell(value))) for value in row])
    console().print(table)


def printable(value: Any) -> str:
    """Text in which nothing is a command to the terminal, wherever it came from."""
    letters = str(value)
    if letters.isprintable():
        return letters
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in letters
    )


def print_json(content: Any) -> None:
    """Print one JSON document; NaN and infinities become null, as JSON has none."""
    print(json.dumps(plain(content), indent=1, allow_nan=False))


def bar(screen: Console, shown: bool, *more: ProgressColumn) -> Progress:
    """Return a bar with how much is done, the time it took and what is left, and `more`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        *more,
        console=screen,
        disable=not shown,
        transient=True,
    )


@contextmanager
def progress_bar(title: str, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that moves a bar with a time estimate on stderr."""
    with bar(Console(stderr=True), shown) as moving:
        task = moving.add_task(title, total=None)
        yield lambda done, total: moving.update(task, completed=done, total=total)
