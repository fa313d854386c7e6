"""`attnlimit reproduce`: tables and figures of the papers, by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from attnlimit.cli.options import AsJson, Seed, print_json, print_table, progress_bar, say, whole
from attnlimit.errors import BadInput, MissingExtra

SECONDS_TO_CONNECT = 15


def _names(start: str) -> list[str]:
    from attnlimit.reproduce.experiment import available

    return [name for name in available() if name.startswith(start)]


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a Dask scheduler; TLS certificates are those of Dask's own configuration."""
    if not address.startswith(("tcp://", "tls://")):
        raise BadInput(
            f"--cluster takes an address such as tcp://HOST:8786, got {address!r}; --workers N "
            "starts processes on this machine."
        )
    try:
        import distributed
    except ImportError:
        missing = "Clusters need Dask: run `pip install 'attnlimit[cluster]'`."
        raise MissingExtra(missing) from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # the run reports what matters
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise BadInput(
            f"No Dask scheduler answers at {address} ({reason}); start one with `dask scheduler`."
        ) from None
    with client:
        yield client.get_executor(pure=False)  # a shard may be computed again


def reproduce(
    name: Annotated[
        str | None, Argument(help="Experiment, or a .py file that has one.", autocompletion=_names)
    ] = None,
    paper: Annotated[bool, Option("--paper", help="Sizes of the paper.")] = False,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting, such as n=[100,1000], of those that NAME --list names; may be repeated.",
        ),
    ] = None,
    capture: Annotated[
        str | None, Option(help="Capture folder, in place of the experiment's model and text.")
    ] = None,
    list_all: Annotated[
        bool, Option("--list", help="List of the experiments, or of the settings of one.")
    ] = False,
    seed: Seed = 0,
    out: Annotated[Path, Option(help="Folder of run folders.")] = Path("runs"),
    workers: Annotated[
        int | None, whole("Number of processes.", show_default="one for each core")
    ] = None,
    cluster: Annotated[
        str | None, Option(help="Address of a Dask scheduler, tcp://HOST:PORT or tls://HOST:PORT.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run one experiment: a run folder, a figure (PNG, PDF, HTML), a page and a table.

    The same command resumes an interrupted run, and shows a finished one again. Without a name
    the experiments are listed.
    """
    if list_all or name is None:
        _list(name, json)
        return
    given = dict(_setting(text) for text in settings or [])
    if workers is not None and cluster is not None:
        raise BadInput(f"--workers starts processes here; the cluster {cluster} has its own.")
    from attnlimit.reproduce import run
    from attnlimit.reproduce.result import write_result
    from attnlimit.runs import ProcessPool

    pool: Any = dask_executor(cluster) if cluster else ProcessPool(workers or os.cpu_count() or 1)
    with pool as executor, progress_bar(Path(name).stem, shown=not json) as progress:
        result = run(
            name,
            given,
            paper=paper,
            seed=seed,
            out=out,
            executor=executor,
            progress=lambda status: progress(status.done, status.total, status.message),
            capture=capture,
        )
    folder, files = write_result(result)
    if json:
        print_json(
            {
                "title": result.title,
                "run": folder,
                "finding": result.finding,
                "table": result.table,
                "remarks": result.remarks,
                "curves": folder / "curves.parquet",
                "figures": files[:-1],
                "page": files[-1],
            }
        )
        return
    say(result.finding)
    print_table(result.shown, result.title)
    say(
        *(f"  {remark}" for remark in result.remarks),
        f"\nrun folder  {folder}\nresults     {folder / 'curves.parquet'}",
        "figures     " + "  ".join(path.name for path in files),
    )


def _setting(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; a value that is not JSON is a word."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise BadInput(f"--set takes KEY=VALUE, as in n=[100,1000], got {text!r}.")
    try:
        return key, loads(value)
    except ValueError:
        return key, value


def _list(name: str | None, json: bool) -> None:
    import pandas as pd

    from attnlimit.reproduce import load
    from attnlimit.reproduce.experiment import available

    rows: list[dict[str, Any]]
    if name is None:
        rows = []
        for experiment in map(load, available()):
            origin = {"paper": experiment.paper, "figure": experiment.figure_of_paper}
            size = {"minutes": experiment.minutes, "title": experiment.title}
            rows.append({"name": experiment.name, **origin, **size})
    else:
        default, paper = (load(name).config(paper=size) for size in (False, True))
        rows = [{"setting": key, "value": default[key], "paper": paper.get(key)} for key in default]
    if json:
        print_json(rows)
        return
    heading = "NAME" if name is None else f"{name} --set SETTING=VALUE"
    shown = pd.DataFrame(rows).map(lambda value: value if isinstance(value, str) else dumps(value))
    print_table(shown, f"attnlimit reproduce {heading}")
