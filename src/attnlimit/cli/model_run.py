"""How do `demo` and `measure` run a model? One run folder, resumed where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.run_view import run_view
from attnlimit.cli.show import console, print_json, print_table
from attnlimit.cli.where import RunOptions


def run_model(asked: ModelOptions, how: RunOptions, *, replicates: int, shown: bool) -> Any:
    """Run a model on its texts, or find the finished run; return the folder."""
    from attnlimit.reproduce import load
    from attnlimit.reproduce.model import NAME
    from attnlimit.runs import execute

    executor = how.executor()
    config = asked.config(replicates=replicates, seed=how.seed)
    with run_view("heads", shown=shown) as progress:
        return execute(
            load(NAME),
            config,
            how.out,
            executor=executor,
            progress=progress,
            weights=config["weights"],
        )


def show_run(folder: Any, page: Path, budget: Path, *, json: bool) -> None:
    """Print what a run found: a table by layer, its remarks, and where everything is."""
    from attnlimit.reproduce import load

    record = folder.record()
    experiment = load(record["experiment"])
    curves = folder.table()
    table: pd.DataFrame = experiment.table(record["config"], curves)
    remarks = experiment.remarks(record["config"], curves)
    if json:
        print_json(
            {
                "run": folder.path,
                "report": page,
                "budget": budget,
                "layers": table,
                "remarks": [remark.strip() for remark in remarks],
            }
        )
        return
    config = record["config"]
    print_table(table, f"{config['model']} on {config['text']}: tokens needed, by layer")
    screen = console()
    for remark in remarks:
        screen.print(f"  {remark}", soft_wrap=True, markup=False)
    screen.print(f"\nrun folder  {folder.path}\nbudgets     {budget}", soft_wrap=True, markup=False)
    screen.print(f"report      {page.resolve()}", soft_wrap=True, markup=False)


def write_results(folder: Any, page: Path | None = None) -> tuple[Path, Path]:
    """Write a run's page and budget file; return their paths."""
    from attnlimit.report.run_page import write_report
    from attnlimit.reproduce.model import plan_of

    plan = plan_of(folder.record()["config"], folder.table())
    budget = plan.write(folder.path / "budget.json")
    path = write_report(folder)
    if page is not None:
        path = write_report(folder, page)
    return path, budget
