"""`attnlimit sparse plan`: mean or attention pooling on the user's bags, and how many to label."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from attnlimit.checks import count
from attnlimit.cli.options import with_options
from attnlimit.cli.show import console, progress_bar
from attnlimit.cli.sparse_options import Numbers, Ridge, Shown, numbers


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
