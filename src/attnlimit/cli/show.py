"""How do commands print? Tables for people, JSON for programs, a progress bar for patience."""

from __future__ import annotations

import json
import time
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
from attnlimit.runs import Status

SECONDS_BETWEEN_LINES = 30.0


def console() -> Console:
    """Where people read; wide enough for a table when it is not a terminal."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=160)


def say(*lines: object) -> None:
    """Print lines as they are: not wrapped, and with no command to the terminal in them."""
    shown = (printable(line) for line in lines)
    console().print(*shown, sep="\n", soft_wrap=True, markup=False)


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


@contextmanager
def run_view(title: str, shown: bool = True) -> Iterator[Callable[[Status], None]]:
    """Yield a function of a run's status that shows it on stderr.

    On a terminal a bar moves; in a log a line is written every half minute. News, such as a
    shard that is tried again, gets a line of its own either way; nothing is said if not `shown`.
    """
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    speed_and_failures = (
        TextColumn("{task.fields[speed]}"),
        TextColumn("[red]{task.fields[failures]}"),
    )
    with bar(screen, shown and screen.is_terminal, *speed_and_failures) as moving:
        task = moving.add_task(title, total=None, speed="", failures="")
        where, said = "", time.monotonic()
        began, first = said, -1

        def show(status: Status) -> None:
            nonlocal where, said, began, first
            if not shown:
                return
            if status.where.split(",")[0] != where.split(",")[0]:
                screen.print(f"{title}: {status.where}", markup=False)
            where = status.where
            if status.message:
                screen.print(f"{title}: {status.message}", markup=False)
            done, now = status.done, time.monotonic()
            if first < 0 or done < first:
                began, first = now, done
            speed = _speed(done - first, now - began)
            failed = {"failed": status.failures, "set aside": status.set_aside}
            failures = ", ".join(f"{count} {what}" for what, count in failed.items() if count)
            moving.update(task, completed=done, total=status.total, speed=speed, failures=failures)
            if not screen.is_terminal and now - said > SECONDS_BETWEEN_LINES:
                said = now
                line = f"{title}: {done} of {status.total} shards {speed} {failures}"
                screen.print(line.rstrip(), markup=False)

        yield show


def _speed(shards: int, seconds: float) -> str:
    if not shards or not seconds:
        return ""
    each = seconds / shards
    return f"{each:.1f} s/shard" if each > 1 else f"{1 / each:.0f} shards/s"
