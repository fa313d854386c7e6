"""`attnlimit runs`: what run folders there are, what is in one, and removing it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, say
from attnlimit.errors import BadInput
from attnlimit.reproduce.pages import table_of
from attnlimit.runs import RunFolder
from attnlimit.runs.record import OtherSchema

Root = Annotated[Path, typer.Option("--out", help="Folder that run folders are in.")]
Name = Annotated[str, typer.Argument(help="A run's name, or its beginning.")]


app = typer.Typer()


@app.callback(invoke_without_command=True)
def by_default(context: typer.Context) -> None:
    """List, show and remove run folders."""
    if context.invoked_subcommand is None:
        list_runs()


@app.command("list")
def list_runs(out: Root = Path("runs"), json: AsJson = False) -> None:
    """List the runs."""
    rows = [_row(RunFolder(path.parent)) for path in sorted(out.glob("*/run.json"))]
    if json:
        print_json(rows)
    elif rows:
        print_table(pd.DataFrame(rows), f"Runs in {out}")
    else:
        say(f"There are no runs in {out}.")


def _row(folder: RunFolder) -> dict[str, object]:
    """What the list says of a run, also of one whose record cannot be read."""
    try:
        record = folder.record()
        state = "finished" if folder.finished else "unfinished"
        if folder.failures():
            state = "shards set aside"
    except OtherSchema:
        record, state = {}, "of another version"
    except BadInput:
        record, state = {}, "damaged"
    size = [file.stat().st_size for file in folder.path.rglob("*") if file.is_file()]
    return {
        "run": folder.path.name,
        "state": state,
        "shards": len(list(folder.path.glob("shards/*.json"))),
        "version": record.get("version", ""),
        "created": record.get("created", ""),
        "MB": round(sum(size) / 1e6, 2),
    }


@app.command()
def show(name: Name, out: Root = Path("runs"), json: AsJson = False) -> None:
    """Show one run: its configuration, and its table when it is finished."""
    folder = find_run(name, out)
    record = folder.record()
    table = table_of(folder) if folder.finished else None
    failures = folder.failures()
    if json:
        about = {"path": folder.path, "finished": folder.finished, "failures": failures}
        print_json({**record, **about, "table": table})
        return
    say(
        f"{folder.path.name}  (attnlimit {record.get('version')})",
        *(f"  {key}: {value}" for key, value in record["config"].items()),
        *(
            f"  shard {one['shard']} was set aside after {one['tries']} tries: {one['error']}"
            for one in failures
        ),
    )
    if table is None:
        say("Not finished; run its command again to resume it.")
    else:
        print_table(table)


@app.command()
def remove(
    name: Name,
    out: Root = Path("runs"),
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask; with --json nothing is asked.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Remove one run folder and everything in it."""
    folder = find_run(name, out)
    if not yes and not json:
        if not sys.stdin.isatty():
            raise BadInput(f"Nobody is there to ask; give --yes to remove {folder.path}.")
        typer.confirm(f"Remove {folder.path}?", abort=True)
    with folder.lock():
        shutil.rmtree(folder.path)
    if json:
        print_json({"removed": folder.path})
    else:
        say(f"Removed {folder.path}.")


def find_run(name: str, out: Path) -> RunFolder:
    """Return the run under `out` whose name begins with `name`."""
    matches = [path.parent for path in out.glob("*/run.json") if path.parent.name.startswith(name)]
    if not name or not matches:
        raise BadInput(f"There is no run {name!r} in {out}; `attnlimit runs list` names them.")
    if len(matches) > 1:
        names = ", ".join(sorted(path.name for path in matches))
        raise BadInput(f"{name!r} could be any of {names}; write more of it.")
    return RunFolder(matches[0])
