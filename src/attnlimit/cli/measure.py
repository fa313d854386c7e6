"""`attnlimit measure` and `demo`: every head of a model on a text, predicted and measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, run_view, say
from attnlimit.cli.where import RunOptions
from attnlimit.report.figures import draw
from attnlimit.report.model_page import heads_figure, model_page
from attnlimit.report.page import write_page
from attnlimit.reproduce.model import ModelRun, survey_of
from attnlimit.runs import RunFolder, execute
from attnlimit.survey import Survey, write_captures
from attnlimit.survey.stored import Stored

REPLICATES = 100


def demo(
    how: RunOptions,
    report: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report/index.html"),
    json: AsJson = False,
) -> None:
    """Predict, measure and budget every head of MiniLM on an article, and write the report.

    Stopped and started again, it goes on where it was.
    """
    run_model(ModelOptions(), how, REPLICATES, json, report)


def measure(
    asked: ModelOptions,
    how: RunOptions,
    replicates: Annotated[int, typer.Option(help="Draws of the referee.")] = REPLICATES,
    json: AsJson = False,
) -> None:
    """Predict every head's error against n, measure it, budget it, and write its page.

    The same command resumes an interrupted run, and shows a finished one again. The page shows the
    first text; budgets are planned on all of them.
    """
    run_model(asked, how, replicates, json)


def run_model(
    asked: ModelOptions, how: RunOptions, replicates: int, json: bool, page: Path | None = None
) -> None:
    """Run a model on its texts, or find the finished run; write what it leaves, and show it."""
    executor = how.executor()
    question = asked.question(replicates=replicates, seed=how.seed)
    with run_view("heads", shown=not json) as progress, TemporaryDirectory() as place:

        @cache
        def store() -> Stored:
            files = write_captures(question, Path(place) / "captures").stored
            assert files is not None
            return files

        shared = how.near and question.stored is None  # workers read what one pass wrote
        folder = execute(
            ModelRun(store if shared else None),
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
        written = {"run": folder.path, "report": report, "budget": budget}
        said = [remark.strip() for remark in remarks]
        print_json({**written, "layers": table, "remarks": said})
        return
    print_table(table, f"{question.model} on {question.text}: tokens needed, by layer")
    say(
        *(f"  {remark}" for remark in remarks),
        f"\nrun folder  {folder.path}\nbudgets     {budget}\nreport      {report.resolve()}",
    )


def write_results(folder: RunFolder, survey: Survey, page: Path | None = None) -> tuple[Path, Path]:
    """Write a run's page, also at `page`, its figure and budget file; return page and budgets."""
    record, report = folder.record(), folder.path / "report.html"
    for path in dict.fromkeys((report, page or report)):
        write_page(path, model_page(record, survey, path.parent))
    draw(heads_figure(survey), folder.path, "heads")
    return page or report, survey.plan.write(folder.path / "budget.json")
