"""How do `demo`, `measure` and `plan` run a model? One run folder, resumed where it stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from attnlimit import checks
from attnlimit.cli.show import console, print_json, print_table, progress_bar

Model = Annotated[
    str, typer.Option("--model", help="minilm, smollm2, a folder with a model, or a hub id.")
]
Text = Annotated[
    str, typer.Option("--text", help="wikipedia:TITLE, a file, a folder, or - for standard input.")
]
Tokens = Annotated[int, typer.Option("--tokens", help="How many tokens of the text.")]
Epsilon = Annotated[float, typer.Option("--epsilon", help="Relative error.")]
Delta = Annotated[float, typer.Option("--delta", help="Chance of missing it.")]
Quantile = Annotated[float, typer.Option("--quantile", help="Share of queries covered.")]
Layers = Annotated[
    list[int] | None, typer.Option("--layer", help="Only this layer; may be repeated.")
]
Replicates = Annotated[int, typer.Option("--replicates", help="Draws of the referee.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Out = Annotated[Path, typer.Option("--out", help="Folder that run folders go in.")]
Workers = Annotated[int | None, typer.Option("--workers", help="Processes; one a core by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def run_model(
    model: str,
    text: str,
    *,
    tokens: int,
    epsilon: float,
    delta: float,
    quantile: float,
    layers: list[int] | None,
    replicates: int,
    seed: int,
    out: Path,
    workers: int | None,
    shown: bool,
) -> Any:
    """Run a model on a text, or find its finished run; return the folder."""
    from attnlimit.budgets.terms import Terms
    from attnlimit.experiments import load
    from attnlimit.experiments.model import NAME, model_config
    from attnlimit.runs import LocalProcesses, execute

    terms = Terms(epsilon, delta, quantile)
    processes = checks.count(
        workers if workers is not None else os.cpu_count() or 1, "--workers", smallest=1
    )
    config = model_config(
        model, text, tokens=tokens, terms=terms, layers=layers, replicates=replicates, seed=seed
    )
    with progress_bar("heads", shown=shown) as progress:
        return execute(
            load(NAME),
            config,
            out,
            executor=LocalProcesses(processes),
            progress=progress,
            weights=config["weights"],
        )


def show_run(folder: Any, page: Path, budget: Path, *, json: bool) -> None:
    """Print what a run found: a table by layer, its remarks, and where everything is."""
    from attnlimit.experiments import load

    record = folder.record()
    experiment = load(record["experiment"])
    curves = folder.curves()
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
    from attnlimit.experiments.model import plan_of
    from attnlimit.report.run_page import write_report

    plan = plan_of(folder.record()["config"], folder.curves())
    budget = plan.write(folder.path / "budget.json")
    path = write_report(folder)
    if page is not None:
        path = write_report(folder, page)
    return path, budget
