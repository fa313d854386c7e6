"""Options, output and progress that commands share."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text
from typer import CallbackParam, Context, Option

from attnlimit.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd

ARTICLE = "wikipedia:Anarchism"
TEXT = "Text: wikipedia:TITLE, sotu:TITLE, a file, a folder, or - for stdin."
PANEL: dict[str, Any] = {"rich_help_panel": "Advanced"}
SECONDS_BETWEEN_LINES = 10.0


def advanced(help: str, *names: str, show_default: bool | str = True) -> Any:
    """Return an option of the panel "Advanced"."""
    return Option(*names, help=help, show_default=show_default, **PANEL)


def whole(help: str, smallest: int = 1, *, rare: bool = False, **more: Any) -> Any:
    """Return an option that takes whole numbers of at least `smallest`; a rare one is advanced."""

    def check(param: CallbackParam, value: int | None) -> int | None:
        from attnlimit.checks import count

        name = f"--{str(param.name).replace('_', '-')}"
        return None if value is None else count(value, name, smallest)

    return Option(help=help, callback=check, **(PANEL if rare else {}), **more)


AsJson = Annotated[bool, Option("--json", help="JSON instead of a table.")]
Device = Annotated[
    str, advanced("Device: auto, cpu, cuda, mps, or several for a model larger than one.")
]
Dtype = Annotated[
    str | None,
    advanced(
        "Precision: float32, bfloat16, float16 or float64.", show_default="that of the weights"
    ),
]


Model = Annotated[str, Option(help="Model: minilm, smollm2, a folder, a GGUF file, or a hub id.")]
Texts = Annotated[
    list[str] | None, Option(help=f"{TEXT[:-1]}; may be repeated.", show_default=ARTICLE)
]
PassageTokens = Annotated[int, whole("Tokens of a passage.", 8)]
Seed = Annotated[int, whole("Seed of all random numbers.", 0)]


def given(context: Context, always: Sequence[str] = (), without: Sequence[str] = ()) -> str:
    """Return the options and arguments that the running command was given, as a shell's words.

    Parameters named in `always` are there by their default too; those in `without` never.
    """
    words: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params[str(parameter.name)]
        told = getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
        if name in without or value is None or not (told or name in always):
            continue
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            flag = [parameter.opts[0]] if parameter.param_type_name == "option" else []
            words += flag if entry is True else [*flag, str(entry)]
    return shlex.join(words)


def html(path: Path | None) -> Path | None:
    """Return the path of a page, which must end in .html."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"A page is an HTML file; give a name that ends in .html, got {path}.")
    return path


def console() -> Console:
    """Return the console of stdout, wide enough for a table where it is not a terminal."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=160)


def say(*lines: object) -> None:
    """Print lines as they are, unwrapped, with control characters escaped."""
    console().print(*map(printable, lines), sep="\n", soft_wrap=True, markup=False)


def print_table(frame: pd.DataFrame, title: str = "") -> None:
    """Print a table with numbers aligned and rounded."""
    from attnlimit.result import cell

    heading = Text(printable(title)) if title else None
    table = Table(title=heading, title_justify="left", header_style="bold")
    for place, column in enumerate(frame.columns):
        numeric = frame.dtypes.iloc[place].kind in "iufb"
        table.add_column(Text(printable(column)), justify="right" if numeric else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*[Text(printable(cell(value))) for value in row])
    console().print(table)


def printable(value: Any) -> str:
    """Return text with control characters escaped: files may hold commands to the terminal."""
    letters = str(value)
    if letters.isprintable():
        return letters
    return "".join(
        letter
        if letter.isprintable() or letter == "\n"
        else letter.encode("unicode_escape").decode()
        for letter in letters
    )


def print_json(content: Any) -> None:
    """Print one JSON document; NaN and infinities become null, as JSON has none."""
    from attnlimit.result import plain

    print(json.dumps(plain(content), indent=1, allow_nan=False))


@contextmanager
def progress_bar(title: str, shown: bool = True) -> Iterator[Callable[..., None]]:
    """Yield a function of (done, total, message="") that shows progress on stderr.

    On a terminal a bar with a time estimate moves, in a log there is a line every ten seconds; a
    message has a line of its own.
    """
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    moving = shown and screen.is_terminal
    last = time.monotonic()
    with Progress(*columns, console=screen, disable=not moving, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int, message: str = "") -> None:
            nonlocal last
            bar.update(task, completed=done, total=total)
            if message and shown:
                screen.print(f"{title}: {message}", markup=False)
            now = time.monotonic()
            if shown and not moving and now - last > SECONDS_BETWEEN_LINES:
                last = now
                screen.print(f"{title}: {done} of {total}", markup=False)

        yield show
