"""`attnlimit sparse`: what attention can detect in a bag of tokens, and from how much data.

Every command but `plan` and `enough` is an experiment of `attnlimit reproduce sparse-...` at the
user's setting.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from attnlimit.checks import count
from attnlimit.cli.options import with_options
from attnlimit.cli.show import console, progress_bar
from attnlimit.cli.sparse_enough import enough
from attnlimit.cli.sparse_options import (
    Alphas,
    Bags,
    Drawn,
    Draws,
    Loss,
    Model,
    Numbers,
    Query,
    Ridge,
    Shown,
    Steps,
    Strengths,
    Task,
    models,
    numbers,
)

app = typer.Typer(
    help="Sparse-token classification: alignment, learning curves, capacity, plans for bags.",
    no_args_is_help=True,
)

app.command()(enough)


@app.command()
@with_options
def alignment(
    task: Task,
    steps: Steps,
    alpha0: Annotated[Numbers, typer.Option(help="Bags over dimension for the query.")] = "1,2,4,8",
    loss: Loss = "logistic",
    best: Annotated[bool, typer.Option("--best", help="Search for good lr_w and lr_b.")] = False,
    *,
    drawn: Drawn,
    shown: Shown,
) -> None:
    """Cosine and norm of the query after two gradient steps on alpha0 d bags."""
    sizes = [task.length, task.signals, task.strength, task.prior]
    settings = {loss: {"task": sizes, "loss": loss, **asdict(steps)}}
    where = {"alphas": numbers(alpha0, "--alpha0"), "lines": 0, **asdict(drawn)}
    shown.run("sparse-alignment", {"settings": settings, "best": best, **where})


@app.command("curves")
@app.command("readout", hidden=True)
@with_options
def curves(
    task: Task,
    query: Query,
    alpha: Alphas = "0.5:16:6",
    model: Model = "all",
    loss: Loss = "logistic",
    ridge: Ridge = 1e-2,
    *,
    drawn: Drawn,
    shown: Shown,
) -> None:
    """Test and training error of a trained readout against the number of bags."""
    setting = {"task": asdict(task), "models": models(model), "loss": loss, "ridge": ridge}
    where = {"alphas": numbers(alpha, "--alpha"), "lines": 0, **asdict(drawn)}
    shown.run("sparse-curves", {**setting, **asdict(query), **where})


@app.command()
@with_options
def plan(
    bags: Annotated[Path, typer.Argument(help="CSV or parquet with bag ids, or a folder of .npy.")],
    budget: Annotated[Numbers, typer.Option(help="Numbers of labelled bags.")] = "50,100,200,400",
    bag: Annotated[str, typer.Option(help="Column that names the bag.")] = "bag",
    label: Annotated[str, typer.Option(help="Column with the bag's label.")] = "label",
    ridge: Ridge = 0.1,
    max_dim: Annotated[int | None, typer.Option(help="Keep this many components.")] = None,
    *,
    shown: Shown,
) -> None:
    """Predict mean and attention pooling on your bags from a pilot set, and recommend one."""
    from attnlimit.report.sparse_figures import plan_figure
    from attnlimit.sparse import plan_bags, read_bags

    pilot = read_bags(bags, bag, label)
    budgets = [count(value, "--budget") for value in numbers(budget, "--budget")]
    with progress_bar("plan", shown=not shown.json) as progress:
        found = plan_bags(
            pilot, budgets, ridge=ridge, max_dim=max_dim, seed=shown.seed, progress=progress
        )
    frame, advice, task = found.to_frame(), found.recommendation, found.estimate.task
    written = shown.save(frame, plan_figure(frame, found.floor, advice), "sparse-plan")
    if not shown.json:
        console().print(str(found.estimate), soft_wrap=True, markup=False)
    known = {"dim": found.estimate.dim, "signal_fraction": found.estimate.signal_fraction}
    shown.show(
        frame,
        "Predicted test error",
        [advice, *written],
        task={**asdict(task), **known},
        checks=found.estimate.to_frame(),
        recommendation=advice,
    )


@app.command()
@with_options
def capacity(
    bags: Bags,
    query: Query,
    strength: Strengths = "0,2,4,6",
    model: Model = "all",
    *,
    drawn: Drawn,
    shown: Shown,
) -> None:
    """Largest n/d at which bags are still perfectly separable."""
    strengths = numbers(strength, "--strength")
    checks = {"dims": dict.fromkeys(models(model), drawn.dim), "replicates": drawn.replicates}
    where = {"strengths": strengths, "checked": strengths, "ratios": [0.9, 1.0, 1.1]}
    shown.run("sparse-capacity", {**asdict(bags), **asdict(query), **where, **checks})


@app.command()
@with_options
def oracle(
    bags: Bags, strength: Strengths = "1,2,3,4,5", draws: Draws = 0, *, shown: Shown
) -> None:
    """Errors of classifiers that know the signal, and the Bayes floor."""
    strengths = numbers(strength, "--strength")
    shown.run("sparse-oracle", {**asdict(bags), "strengths": strengths, "draws": draws})


@app.command()
@with_options
def separation(
    error: Annotated[float, typer.Option(help="Error to reach.")] = 0.05,
    length: Annotated[Numbers, typer.Option("--length", "-L")] = "16,256,4096,65536,1048576",
    signals: Annotated[int, typer.Option("--signals", "-R", help="Signals in a bag.")] = 1,
    prior: Annotated[float, typer.Option("--prior", help="Probability of a positive bag.")] = 0.5,
    draws: Draws = 0,
    *,
    shown: Shown,
) -> None:
    """Strength that each classifier needs, against the length: log L against sqrt L."""
    lengths = [count(value, "--length") for value in numbers(length, "--length")]
    setting = {"error": error, "signals": signals, "prior": prior, "draws": draws}
    shown.run("sparse-separation", {**setting, "lengths": lengths})


@app.command()
@with_options
def phase(
    bags: Bags,
    strength: Strengths = "1,2,3,4,5",
    alpha: Alphas = "1:32:4",
    ridge: Ridge = 0.1,
    loss: Loss = "logistic",
    *,
    shown: Shown,
) -> None:
    """Which classifier has the least error, at each strength and number of bags."""
    strengths, alphas = numbers(strength, "--strength"), numbers(alpha, "--alpha")
    grid = {"strengths": strengths, "alphas": alphas, "dim": 0}
    shown.run("sparse-phase", {**asdict(bags), **grid, "ridge": ridge, "loss": loss})
