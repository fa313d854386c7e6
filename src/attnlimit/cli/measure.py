"""`attnlimit measure`: every head of any model on any text, predicted and measured."""

from __future__ import annotations

from pathlib import Path

import typer

from attnlimit.cli.model_run import (
    AsJson,
    Delta,
    Epsilon,
    Layers,
    Model,
    Out,
    Quantile,
    Replicates,
    Seed,
    Text,
    Tokens,
    Workers,
    run_model,
    show_run,
    write_results,
)


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("measure")(measure)


def measure(
    model: Model = "minilm",
    text: Text = "wikipedia:Anarchism",
    tokens: Tokens = 512,
    epsilon: Epsilon = 0.1,
    delta: Delta = 0.05,
    quantile: Quantile = 0.99,
    layer: Layers = None,
    replicates: Replicates = 100,
    seed: Seed = 0,
    out: Out = Path("runs"),
    workers: Workers = None,
    json: AsJson = False,
) -> None:
    """Predict every head's error against n, measure it, budget it, and write its page.

    The same command resumes an interrupted run, and shows a finished one again.
    """
    folder = run_model(
        model,
        text,
        tokens=tokens,
        epsilon=epsilon,
        delta=delta,
        quantile=quantile,
        layers=layer,
        replicates=replicates,
        seed=seed,
        out=out,
        workers=workers,
        shown=not json,
    )
    page, budget = write_results(folder)
    show_run(folder, page, budget, json=json)
