"""`attnlimit plan`: how many tokens each head needs, by which scheme, as a table and a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlimit.cli.model_run import (
    AsJson,
    Delta,
    Epsilon,
    Layers,
    Model,
    Quantile,
    Text,
    Tokens,
)
from attnlimit.cli.show import console, print_json, print_table, progress_bar


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("plan")(plan)


def plan(
    model: Model = "minilm",
    text: Text = "wikipedia:Anarchism",
    tokens: Tokens = 512,
    epsilon: Epsilon = 0.1,
    delta: Delta = 0.05,
    quantile: Quantile = 0.99,
    layer: Layers = None,
    budget: Annotated[
        Path | None, typer.Option("--budget", help="Write the budget file here.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Budget every head of a model on a text; nothing is drawn, so nothing is random."""
    from attnlimit.budgets import plan_budgets
    from attnlimit.budgets.terms import Terms
    from attnlimit.experiments.model import capture_for, model_config

    terms = Terms(epsilon, delta, quantile)
    config = model_config(model, text, tokens=tokens, terms=terms, layers=layer)
    capture = capture_for(config)
    source = {key: config[key] for key in ("model", "weights", "text", "tokens")}
    with progress_bar("heads", shown=not json) as progress:
        found = plan_budgets(capture, terms, source=source, progress=progress)
    written = found.write(budget) if budget is not None else None
    if json:
        print_json({**found.to_dict(), "file": written})
        return
    print_table(found.to_frame(), f"{model} on {text}: certified tokens, by scheme")
    screen = console()
    screen.print(str(found), soft_wrap=True, markup=False)
    stuck = [head for head in found.heads if not head.kind.thinnable]
    if stuck:
        names = ", ".join(f"{head.layer}.{head.head} ({head.kind.name})" for head in stuck)
        screen.print(f"  layer.head not thinnable: {names}", soft_wrap=True, markup=False)
    for factor in (10, 100):
        cheap = sorted(min(head.longer[factor].values()) for head in found.heads)
        screen.print(
            f"  at {factor} times the context, extrapolated: median head "
            f"{cheap[len(cheap) // 2]} of {factor * found.context} tokens",
            markup=False,
        )
    if written is not None:
        screen.print(f"budget file  {written}", soft_wrap=True, markup=False)
