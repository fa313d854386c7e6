"""`attnlimit reproduce`: every table and figure of the papers, by name."""

from __future__ import annotations

from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from attnlimit import checks
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, run_view, say
from attnlimit.cli.where import RunOptions
from attnlimit.errors import BadInput


def _beginning_with(start: str) -> list[str]:
    from attnlimit.reproduce.registry import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(start)]


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Which one; see --list. Or a .py file of your own.", autocompletion=_beginning_with
        ),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's sizes.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another setting, as in n=[100,1000]; may be repeated. NAME --list names them.",
        ),
    ] = None,
    capture: Annotated[
        str | None, typer.Option(help="A capture's folder, in place of its model and text.")
    ] = None,
    list_all: Annotated[
        bool,
        typer.Option("--list", help="Name the experiments, or the settings of one, and stop."),
    ] = False,
    json: AsJson = False,
    *,
    how: RunOptions,
) -> None:
    """Run one experiment: a run folder, a figure (PNG, PDF, HTML), a page and a table.

    The same command resumes an interrupted run, and shows a finished one again.
    """
    if list_all:
        _list(name, json)
        return
    if name is None:
        raise BadInput("Which experiment? `attnlimit reproduce --list` names them.")
    from attnlimit.reproduce import run
    from attnlimit.reproduce.pages import write_result

    seed = checks.count(how.seed, "--seed", smallest=0)
    with run_view(Path(name).stem, shown=not json) as progress:
        result = run(
            name,
            dict(_setting(text) for text in settings or []),
            paper=paper,
            seed=seed,
            out=how.out,
            executor=how.executor(),
            progress=progress,
            capture=capture,
        )
    folder, files = write_result(result)
    if json:
        print_json(
            {
                "title": result.experiment.title,
                "run": folder,
                "table": result.table,
                "remarks": result.remarks,
                "curves": folder / "curves.parquet",
                "figures": files[:-1],
                "page": files[-1],
            }
        )
        return
    print_table(result.shown, result.experiment.title)
    say(
        *(f"  {remark}" for remark in result.remarks),
        f"\nrun folder  {folder}\nresults     {folder / 'curves.parquet'}",
        "figures     " + "  ".join(path.name for path in files),
    )


def _setting(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; a value that is not JSON is a word."""
    key, found, value = text.partition("=")
    if not found or not key:
        raise BadInput(f"--set takes KEY=VALUE, as in n=[100,1000], got {text!r}.")
    try:
        return key, loads(value)
    except ValueError:
        return key, value


def _list(name: str | None, json: bool) -> None:
    from attnlimit.reproduce import EXPERIMENTS, load

    rows: list[dict[str, Any]]
    if name is None:
        rows = [{"name": one, "title": load(one).title} for one in EXPERIMENTS]
        head = "attnlimit reproduce NAME"
    else:
        found = load(name)
        first, paper = found.config(paper=False), found.config(paper=True)
        rows = [{"setting": key, "value": first[key], "paper": paper.get(key)} for key in first]
        head = f"attnlimit reproduce {name} --set SETTING=VALUE"
    if json:
        print_json(rows)
        return
    print_table(
        pd.DataFrame(rows).map(lambda one: one if isinstance(one, str) else dumps(one)), head
    )
