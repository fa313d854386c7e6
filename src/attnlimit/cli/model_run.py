"""How do `demo` and `measure` run a model? One run folder, resumed where it stopped."""

from __future__ import annotations

from pathlib import Path

from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.run_view import run_view
from attnlimit.cli.show import console, print_json, print_table
from attnlimit.cli.where import RunOptions
from attnlimit.report.figures import draw
from attnlimit.report.heads_figure import heads_figure
from attnlimit.reproduce.model import EXPERIMENT, survey_of
from attnlimit.reproduce.pages import write_report
from attnlimit.runs import RunFolder, execute


def run_model(
    asked: ModelOptions, how: RunOptions, *, replicates: int, page: Path | None, json: bool
) -> None:
    """Run a model on its texts, or find the finished run; write what it leaves, and show it."""
    executor = how.executor()
    question = asked.question(replicates=replicates, seed=how.seed)
    with run_view("heads", shown=not json) as progress:
        folder = execute(
            EXPERIMENT,
            question.to_config(),
            how.out,
            executor=executor,
            progress=progress,
            weights=question.weights,
        )
    show_run(folder, *write_results(folder, page), json=json)


def write_results(folder: RunFolder, page: Path | None = None) -> tuple[Path, Path]:
    """Write a run's page, figure and budget file; return the paths of page and budget file."""
    survey = survey_of(folder)
    budget = survey.plan.write(folder.path / "budget.json")
    draw(heads_figure(survey), folder.path, "heads")
    path = write_report(folder)
    return (path if page is None else write_report(folder, page)), budget


def show_run(folder: RunFolder, page: Path, budget: Path, *, json: bool) -> None:
    """Print what a run found: a table by layer, its remarks, and where everything is."""
    survey = survey_of(folder)
    table, remarks = survey.layers(), survey.remarks()
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
    asked = survey.question
    print_table(table, f"{asked.model} on {asked.text}: tokens needed, by layer")
    screen = console()
    for remark in remarks:
        screen.print(f"  {remark}", soft_wrap=True, markup=False)
    screen.print(f"\nrun folder  {folder.path}\nbudgets     {budget}", soft_wrap=True, markup=False)
    screen.print(f"report      {page.resolve()}", soft_wrap=True, markup=False)
