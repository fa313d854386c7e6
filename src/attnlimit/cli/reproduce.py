"""`attnlimit reproduce`: every table and figure of the papers, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from attnlimit import checks
from attnlimit.cli.options import with_options
from attnlimit.cli.run_view import run_view
from attnlimit.cli.show import console, print_json, print_table
from attnlimit.cli.where import RunOptions
from attnlimit.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("reproduce", no_args_is_help=True)(reproduce)


@with_options
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one; see --list.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's sizes.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Say what there is, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    *,
    how: RunOptions,
) -> None:
    """Run one experiment: a run folder, a figure (PNG, PDF, HTML) and a table.

    The same command resumes an interrupted run, and shows a finished one again.
    """
    if list_all:
        _list(json)
        return
    if name is None:
        raise BadInput("Which experiment? `attnlimit reproduce --list` names them.")
    from attnlimit.report.figures import draw
    from attnlimit.reproduce import load
    from attnlimit.runs import execute

    experiment = load(name)
    config = experiment.config(paper) | {"seed": checks.count(how.seed, "--seed", smallest=0)}
    with run_view(name, shown=not json) as progress:
        folder = execute(experiment, config, how.out, executor=how.executor(), progress=progress)
    curves = folder.table()
    table = experiment.table(config, curves)
    remarks = experiment.remarks(config, curves)
    figures = draw(experiment.figure(config, curves), folder.path, name)
    _show(json, experiment.title, folder.path, table, remarks, figures)


def _show(
    json: bool, title: str, folder: Path, table: pd.DataFrame, remarks: list[str], figures: Any
) -> None:
    if json:
        print_json(
            {
                "title": title,
                "run": folder,
                "table": table,
                "remarks": remarks,
                "curves": folder / "curves.parquet",
                "figures": figures,
            }
        )
        return
    print_table(table, title)
    screen = console()
    for remark in remarks:
        screen.print(f"  {remark}", soft_wrap=True, markup=False)
    screen.print(f"\nrun folder  {folder}\nresults     {folder / 'curves.parquet'}", soft_wrap=True)
    screen.print("figures     " + "  ".join(path.name for path in figures), soft_wrap=True)


def _list(json: bool) -> None:
    from attnlimit.reproduce import EXPERIMENTS, load

    rows = [{"name": name, "title": load(name).title} for name in EXPERIMENTS]
    frame = pd.DataFrame(rows)
    if json:
        print_json(frame)
    else:
        print_table(frame, "attnlimit reproduce NAME")
