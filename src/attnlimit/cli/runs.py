"""`attnlimit runs`: list, show and compare run folders, and write their pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnlimit.cli.options import AsJson, html, print_json, print_table, say
from attnlimit.errors import BadInput
from attnlimit.files import Damaged

if TYPE_CHECKING:
    from attnlimit.runs import RunFolder

Root = Annotated[Path, typer.Option("--out", help="Folder of run folders.")]
Name = Annotated[str, typer.Argument(help="A run folder, or the beginning of its name.")]
Page = Annotated[
    Path | None,
    typer.Option(
        "--page", help="File to write.", callback=html, show_default="report.html in the run"
    ),
]

app = typer.Typer()


@app.callback(invoke_without_command=True)
def by_default(context: typer.Context) -> None:
    """List, show and compare run folders, and write their pages."""
    if context.invoked_subcommand is None:
        list_runs()


@app.command("list")
def list_runs(out: Root = Path("runs"), json: AsJson = False) -> None:
    """List the runs."""
    import pandas as pd

    from attnlimit.runs import RunFolder

    rows = [_row(RunFolder(path.parent)) for path in sorted(out.glob("*/run.json"))]
    if json:
        print_json(rows)
    elif rows:
        print_table(pd.DataFrame(rows), f"Runs in {out}")
    else:
        say(f"There are no runs in {out}.")


def _row(folder: RunFolder) -> dict[str, object]:
    """Return a row of the list, also of a run whose record cannot be read."""
    try:
        record = folder.record()
        state = "finished" if folder.finished else "unfinished"
        if folder.failures():
            state = "shards failed"
    except Damaged:
        record, state = {}, "damaged"
    except BadInput:
        record, state = {}, "of another version"
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
    from attnlimit.reproduce.result import table_of

    folder = find_run(name, out)
    record, failures = folder.record(), folder.failures()
    table = table_of(folder) if folder.finished else None
    if json:
        about = {"path": folder.path, "finished": folder.finished, "failures": failures}
        print_json({**record, **about, "table": table})
        return
    say(
        f"{folder.path.name}  (attnlimit {record.get('version')})",
        *(f"  {key}: {value}" for key, value in record["config"].items()),
        *(f"  shard {failure['shard']} failed: {failure['error']}" for failure in failures),
    )
    if table is None:
        say("Not finished; run its command again to resume it.")
    else:
        print_table(table)


@app.command()
def page(name: Name, out: Root = Path("runs"), page: Page = None, json: AsJson = False) -> None:
    """Write the page of a finished run again."""
    from attnlimit.reproduce.result import write_report

    path = write_report(find_run(name, out), page)
    if json:
        print_json({"page": path})
    else:
        say(f"page  {path.resolve()}")


@app.command()
def compare(first: Name, second: Name, out: Root = Path("runs"), json: AsJson = False) -> None:
    """Put the tables of two runs of one experiment side by side."""
    from attnlimit.reproduce.result import side_by_side

    runs = find_run(first, out), find_run(second, out)
    table = side_by_side(*runs)
    if json:
        print_json({"runs": [run.path for run in runs], "table": table})
    else:
        print_table(table, " beside ".join(run.path.name for run in runs))


def find_run(name: str, out: Path) -> RunFolder:
    """Return the run folder `name`, or the one under `out` whose name begins so."""
    from attnlimit.models.store import MANIFEST
    from attnlimit.runs import RunFolder

    if name and (Path(name) / "run.json").is_file():
        return RunFolder(Path(name))
    if (Path(name or "-") / MANIFEST).is_file():
        raise BadInput(
            f"{name} is a capture, not a run: `attnlimit plan --capture {name} --page page.html` "
            "makes a page of it."
        )
    matches = [path.parent for path in out.glob("*/run.json") if path.parent.name.startswith(name)]
    if not name or not matches:
        raise BadInput(f"There is no run {name!r} in {out}; `attnlimit runs list` names them.")
    if len(matches) > 1:
        names = ", ".join(sorted(path.name for path in matches))
        raise BadInput(f"{name!r} could be any of {names}; write more of it.")
    return RunFolder(matches[0])
