"""`attnlimit measure`: every head of any model on any text, predicted and measured."""

from __future__ import annotations

from typing import Annotated

import typer

from attnlimit.cli.model_options import REPLICATES, ModelOptions
from attnlimit.cli.model_run import run_model
from attnlimit.cli.options import AsJson, with_options
from attnlimit.cli.where import RunOptions


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("measure")(with_options(measure))


def measure(
    asked: ModelOptions,
    how: RunOptions,
    replicates: Annotated[
        int, typer.Option("--replicates", help="Draws of the referee.")
    ] = REPLICATES,
    json: AsJson = False,
) -> None:
    """Predict every head's error against n, measure it, budget it, and write its page.

    The same command resumes an interrupted run, and shows a finished one again. The page shows the
    first text; budgets are planned on all of them.
    """
    run_model(asked, how, replicates=replicates, page=None, json=json)
