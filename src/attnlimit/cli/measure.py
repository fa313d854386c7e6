"""`attnlimit measure` and `demo`: every head of a model on a text, predicted and measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from attnlimit.cli.model_options import ModelOptions
from attnlimit.cli.options import AsJson, html
from attnlimit.cli.show import print_json, print_table, run_view, say
from attnlimit.cli.where import RunOptions
from attnlimit.report.figures import draw
from attnlimit.report.heads_part import heads_figure
from attnlimit.report.model_page import model_page
from attnlimit.report.page import write_page
from attnlimit.reproduce.model import ModelRun, survey_of
from attnlimit.runs import RunFolder, execute
from attnlimit.survey import Survey, write_captures
from attnlimit.survey.stored import Stored

REPLICATES = 100
DEMO_PARTS = 2
DEMO_REPLICATES = 24


def demo(
    how: RunOptions,
    report: Annotated[Path, typer.Option(help="Where the page goes.", callback=html)] = Path(
        "report/index.html"
    ),
    json: AsJson = False,
) -> None:
    """Say how few keys are enough for MiniLM on an article, measure it, and write the page.

    Stopped and started again, it goes on where it was.
    """
    run_model(ModelOptions(parts=DEMO_PARTS), how, DEMO_REPLICATES, json, report)


def measure(
    asked: ModelOptions,
    how: RunOptions,
    replicates: Annotated[
        int, typer.Option(help="Draws that each head is measured with.")
    ] = REPLICATES,
    json: AsJson = False,
) -> None:
    """Plan for the model's output, look at every head by itself, measure both, write the page.

    The same command resumes an interrupted run, and shows a finished one again. The page shows the
    first text; plans are made on all of them.
    """
    run_model(asked, how, replicates, json)


def run_model(
    asked: ModelOptions, how: RunOptions, replicates: int, json: bool, page: Path | None = None
) -> None:
    """Run a model on its texts, or find the finished run; write what it leaves, and show it."""
    executor = how.executor()
    question = asked.question(replicates=replicates, seed=how.seed)
    with run_view("output and heads", shown=not json) as progress, TemporaryDirectory() as place:

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
    written = {"run": folder.path, **write_results(folder, survey, page)}
    table, remarks = survey.layers(), survey.remarks()
    if json:
        said = {"answer": survey.says(), "remarks": [remark.strip() for remark in remarks]}
        print_json({**written, "layers": table, **said})
        return
    say(*survey.says(), "")
    print_table(table, f"{question.model} on {question.text}: tokens single heads need, by layer")
    say(*(f"  {remark}" for remark in remarks), "")
    say(*(f"{name:<8}{path.resolve()}" for name, path in written.items()))


def write_results(folder: RunFolder, survey: Survey, page: Path | None = None) -> dict[str, Path]:
    """Write a run's page, also at `page`, its figure, plan and budget file; return where."""
    record, report = folder.record(), folder.path / "report.html"
    for path in dict.fromkeys((report, page or report)):
        write_page(path, model_page(record, survey, path.parent))
    draw(heads_figure(survey), folder.path, "heads")
    written = {}
    if survey.has_output:
        written["plan"] = survey.output_plan.write(folder.path / "plan.json")
    budget = survey.plan.write(folder.path / "budget.json")
    return {**written, "budget": budget, "report": page or report}
