"""`attnlimit demo`: a real BERT on real Wikipedia text, from nothing to a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlimit.cli.model_run import AsJson, Out, Seed, Workers, run_model, show_run, write_results


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("demo")(demo)


def demo(
    out: Out = Path("runs"),
    report: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report/index.html"),
    seed: Seed = 0,
    workers: Workers = None,
    json: AsJson = False,
) -> None:
    """Predict, measure and budget every head of MiniLM on an article, and write the report.

    Stopped and started again, it goes on where it was.
    """
    folder = run_model(
        "minilm",
        "wikipedia:Anarchism",
        tokens=512,
        epsilon=0.1,
        delta=0.05,
        quantile=0.99,
        layers=None,
        replicates=100,
        seed=seed,
        out=out,
        workers=workers,
        shown=not json,
    )
    page, budget = write_results(folder, report)
    show_run(folder, page, budget, json=json)
