"""`attnlimit report`, `compare` and `explorer`: pages of runs and of the theory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlimit.cli.options import AsJson, html
from attnlimit.cli.runs import Root, find_run
from attnlimit.cli.show import print_json, say
from attnlimit.errors import BadInput
from attnlimit.models.store.manifest import NAME as MANIFEST
from attnlimit.report.explorer import write_explorer
from attnlimit.reproduce.pages import write_comparison, write_report
from attnlimit.runs import RunFolder

Run = Annotated[str, typer.Argument(help="A run folder, or the beginning of its name.")]
PageHere = Annotated[Path, typer.Option("--page", help="Where the page goes.", callback=html)]
Page = Annotated[
    Path | None,
    typer.Option("--page", help="Where the page goes; into the run by default.", callback=html),
]


def report(run: Run, out: Root = Path("runs"), page: Page = None, json: AsJson = False) -> None:
    """Build the page of a finished run again."""
    _say(write_report(_find(run, out), page), json)


def compare(
    first: Run,
    second: Run,
    out: Root = Path("runs"),
    page: PageHere = Path("report/compare.html"),
    json: AsJson = False,
) -> None:
    """Put two runs of one kind side by side: two models, two texts, two settings."""
    _say(write_comparison(_find(first, out), _find(second, out), page), json)


def explorer(page: PageHere = Path("report/explorer.html"), json: AsJson = False) -> None:
    """Write the page of sliders over the exact laws."""
    _say(write_explorer(page), json)


def _find(name: str, out: Path) -> RunFolder:
    if not name:
        raise BadInput("Which run? `attnlimit runs list` names them.")
    if (Path(name) / MANIFEST).is_file():
        raise BadInput(
            f"{name} is a capture, not a run: `attnlimit measure --capture {name}` makes one of "
            "it, with its page."
        )
    here = RunFolder(Path(name))
    return here if (here.path / "run.json").is_file() else find_run(name, out)


def _say(path: Path, json: bool) -> None:
    if json:
        print_json({"page": path})
    else:
        say(f"report  {path.resolve()}")
