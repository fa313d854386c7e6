"""How do `demo` and `measure` run a model? One run folder, resumed where it stopped."""

from __future__ import annotations

from pathlib import Path

from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.run_view import run_view
from attnlimit.cli.show import console, print_json, print_table
from attnlimit.cli.where import RunOptions
from attnlimit.report.figures import draw
from attnlimit.report.heads_figure import heads_figure
from attnlimit.report.model_page import model_page
from attnlimit.report.page import write_page
from attnlimit.reproduce.model import EXPERIMENT, survey_of
from attnlimit.runs import RunFolder, execute
from attnlimit.survey import Survey


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
    survey = survey_of(folder)
    report, budget = write_results(folder, survey, page)
    table, remarks = survey.layers(), survey.remarks()
    if json:
        print_json(
            {
                "run": folder.path,
                "report": report,
                "budget": budget,
                "layers": table,
                "remarks": [remark.strip() for remark in remarks],
            }
        )
        return
    print_table(table, f"{question.model} on {question.text}: tokens needed, by layer")
    screen = console()
    for remark in remarks:
        screen.print(f"  {remark}", soft_wrap=True, markup=False)
    screen.print(f"\nrun folder  {folder.path}\nbudgets     {budget}", soft_wrap=True, markup=False)
    screen.print(f"report      {report.resolve()}", soft_wrap=True, markup=False)


def write_results(folder: RunFolder, survey: Survey, page: Path | None = None) -> tuple[Path, Path]:
    """Write a run's page, also at `page`, its figure and budget file; return page and budgets."""
    record, report = folder.record(), folder.path / "report.html"
    for path in dict.fromkeys((report, page or report)):
        write_page(path, model_page(record, survey, path.parent))
    draw(heads_figure(survey), folder.path, "heads")
    return page or report, survey.plan.write(folder.path / "budget.json")
