"""`attnlimit demo`: a real BERT on real Wikipedia text, from nothing to a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlimit.cli.model_options import REPLICATES, ModelOptions
from attnlimit.cli.model_run import run_model
from attnlimit.cli.options import AsJson, with_options
from attnlimit.cli.where import RunOptions


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("demo")(with_options(demo))


def demo(
    how: RunOptions,
    report: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report/index.html"),
    json: AsJson = False,
) -> None:
    """Predict, measure and budget every head of MiniLM on an article, and write the report.

    Stopped and started again, it goes on where it was.
    """
    run_model(ModelOptions(), how, replicates=REPLICATES, page=report, json=json)
