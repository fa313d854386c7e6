"""`attnlimit sparse`: what attention can detect in a bag of tokens, and from how much data.

Every command but `plan` and `enough` is an experiment of `attnlimit reproduce sparse-...` at the
user's setting.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from attnlimit.checks import count
from attnlimit.cli.options import with_options
from attnlimit.cli.show import progress_bar
from attnlimit.cli.sparse_enough import enough
from attnlimit.cli.sparse_options import (
    Alphas,
    Bags,
    BagsFile,
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
    bags: BagsFile,
    budget: Annotated[
        Numbers | None, typer.Option(help="Labelled bags to predict for; 1, 2, 4 and 8 pilots.")
    ] = None,
    bag: Annotated[str, typer.Option(help="Column that names the bag.")] = "bag",
    label: Annotated[str, typer.Option(help="Column with the bag's label.")] = "label",
    max_dim: Annotated[
        int | None, typer.Option(help="Most principal components that the theory looks at.")
    ] = None,
    *,
    shown: Shown,
) -> None:
    """Which pooling, and how many labelled bags: tried on a pilot, and predicted beyond it.

    Writes a page and a table in --out, which is the folder sparse-plan unless it is given.
    """
    from attnlimit.report.bags_page import plan_figure, plan_page
    from attnlimit.report.page import write_page
    from attnlimit.sparse import plan_bags, read_bags
    from attnlimit.sparse.bags.sentences import (
        broken_assumptions,
        next_step,
        recommendation,
        remarks,
        spoken,
    )
    from attnlimit.sparse.bags.telling import telling_instances

    pilot = read_bags(bags, bag, label)
    wanted = numbers(budget, "--budget") if budget else None
    budgets = None if wanted is None else [count(value, "--budget") for value in wanted]
    with progress_bar("plan", shown=not shown.json) as progress:
        found = plan_bags(pilot, budgets, max_dim=max_dim, seed=shown.seed, progress=progress)
    folder = shown.out or Path("sparse-plan")
    shown = replace(shown, out=folder)
    telling = telling_instances(found, pilot)
    written = shown.save(found.to_frame(), plan_figure(found), "sparse-plan-curves")
    command = f"attnlimit sparse plan {quote(str(bags))} --seed {shown.seed}"
    page = write_page(folder / "sparse-plan.html", plan_page(found, telling, command))
    advice = recommendation(found)
    task = found.estimate and {**asdict(found.estimate.task), "dim": found.estimate.dim}
    shown.show(
        found.to_frame() if shown.json else spoken(found),
        "Error on other bags",
        [advice, *remarks(found), *broken_assumptions(found), f"page: {page}", *written],
        task=task,
        checks=None if found.estimate is None else found.estimate.to_frame(),
        recommended=found.recommended,
        recommendation=advice,
        next_step=next_step(found),
        advice=[asdict(one) for one in found.advice],
        telling=telling,
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
    length: Annotated[
        Numbers, typer.Option("--length", "-L", help="Tokens in a bag.")
    ] = "16,256,4096,65536,1048576",
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
