"""`attnlimit sparse`: what attention can detect in a bag of tokens, and from how much data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from attnlimit.checks import Array, count, one_of, real_array
from attnlimit.cli.show import console, print_json, print_table, progress_bar
from attnlimit.errors import BadInput

app = typer.Typer(
    help="Sparse-token classification: alignment, learning curves, capacity, plans for bags.",
    no_args_is_help=True,
)

Length = Annotated[int, typer.Option("--length", "-L", help="Tokens in a bag.")]
Signals = Annotated[int, typer.Option("--signals", "-R", help="Signal tokens in a positive bag.")]
Strength = Annotated[float, typer.Option("--strength", help="Size of the signal, noise being 1.")]
Prior = Annotated[float, typer.Option("--prior", help="Probability of a positive bag.")]
Loss = Annotated[str, typer.Option("--loss", help="logistic, square or hinge.")]
Ridge = Annotated[float, typer.Option("--ridge", help="Ridge on the readout; 0 for the limit.")]
Cosine = Annotated[float, typer.Option("--cosine", help="Cosine of the query with the signal.")]
Sharpness = Annotated[float, typer.Option("--sharpness", help="beta |q|, the query's sharpness.")]
Model = Annotated[str, typer.Option("--model", help="attention, pooled, vectorized or all.")]
Numbers = str
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for a figure and a table.")]


def register(root: typer.Typer) -> None:
    """Add the commands to the root."""
    root.add_typer(app, name="sparse")


def _numbers(text: str, name: str) -> Array:
    """Read "1,2,5" or "0.5:8:6" (from, to, how many, spaced geometrically)."""
    try:
        if ":" in text:
            low, high, many = text.split(":")
            return np.geomspace(float(low), float(high), int(many))
        return real_array([float(part) for part in text.split(",")], name, ndim=1)
    except ValueError:
        raise BadInput(
            f"{name} must be numbers like 1,2,5 or a range like 0.5:8:6 (from, to, how many), "
            f"got {text!r}."
        ) from None


def _models(model: str) -> tuple[str, ...]:
    from attnlimit.sparse.task import MODELS

    one_of(model, (*MODELS, "all"), "--model")
    return MODELS if model == "all" else (model,)


def _show(frame: pd.DataFrame, title: str, json: bool, notes: list[str] | None = None) -> None:
    if json:
        print_json({"table": frame, "notes": notes or []})
        return
    print_table(frame, title)
    for note in notes or []:
        console().print(f"  {note}", soft_wrap=True, markup=False)


def _save(frame: pd.DataFrame, spec: Any, out: Path | None, name: str) -> list[str]:
    if out is None:
        return []
    from attnlimit.report.figures import draw

    out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out / f"{name}.csv", index=False)
    paths = [out / f"{name}.csv", *draw(spec, out, name)]
    return ["written: " + "  ".join(str(path) for path in paths)]


@app.command()
def alignment(
    length: Length = 10,
    signals: Signals = 1,
    strength: Strength = 5.0,
    prior: Prior = 0.5,
    alpha0: Annotated[Numbers, typer.Option(help="Bags over dimension for the query.")] = "1,2,4,8",
    loss: Loss = "logistic",
    lr_w: Annotated[float, typer.Option(help="First step on the readout.")] = 1.0,
    lr_b: Annotated[float, typer.Option(help="First step on the bias.")] = 1.0,
    lr_q: Annotated[float, typer.Option(help="Second step, on the query.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Inverse temperature of the softmax.")] = 1.0,
    best: Annotated[bool, typer.Option("--best", help="Search for good lr_w and lr_b.")] = False,
    dim: Annotated[
        int | None, typer.Option(help="Also take the steps on drawn bags of this dimension.")
    ] = None,
    replicates: Annotated[int, typer.Option(help="Draws for --dim.")] = 8,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Cosine and norm of the query after two gradient steps on alpha0 d bags."""
    from attnlimit.sparse import (
        SparseTask,
        best_step_sizes,
        query_alignment,
        simulate_alignment,
    )

    task = SparseTask(length, signals, strength, prior)
    rows = []
    sizes = _numbers(alpha0, "--alpha0")
    with progress_bar("alignment", shown=dim is not None and not json) as progress:
        for done, size in enumerate(sizes):
            rate_w, rate_b = lr_w, lr_b
            if best:
                chosen = best_step_sizes(task, size, loss, beta=beta, dim=dim)
                rate_w, rate_b = chosen.lr_w, chosen.lr_b
            found = query_alignment(task, size, loss, rate_w, rate_b, lr_q, beta)
            row = found.to_frame().iloc[0].to_dict()
            if dim is not None:
                drawn = simulate_alignment(
                    task,
                    size,
                    loss,
                    rate_w,
                    rate_b,
                    lr_q,
                    beta,
                    dim=dim,
                    replicates=replicates,
                    seed=seed,
                )
                row |= {"cosine measured": drawn.mean["cosine"], "+-": drawn.stderr["cosine"]}
            rows.append(row)
            progress(done + 1, len(sizes))
    frame = pd.DataFrame(rows).drop(columns=["loss", "beta"])
    notes = []
    if (frame["cosine"] < 0).any():
        notes.append(
            "A negative cosine: these steps turn the query away from the signal; try --best."
        )
    _show(frame, f"Query after two gradient steps ({loss})", json, notes)


@app.command()
def curves(
    length: Length = 10,
    signals: Signals = 1,
    strength: Strength = 5.0,
    prior: Prior = 0.5,
    alpha: Annotated[Numbers, typer.Option(help="Bags over dimension.")] = "0.5:16:6",
    model: Model = "all",
    cosine: Cosine = 0.9,
    sharpness: Sharpness = 1.0,
    loss: Loss = "logistic",
    ridge: Ridge = 1e-2,
    dim: Annotated[
        int | None, typer.Option(help="Also train on drawn bags of this dimension.")
    ] = None,
    replicates: Annotated[int, typer.Option(help="Draws for --dim.")] = 8,
    seed: Seed = 0,
    out: Out = None,
    json: AsJson = False,
) -> None:
    """Test and training error of a trained readout against the number of bags."""
    from attnlimit.report.sparse_figures import curves_figure
    from attnlimit.sparse import SparseTask, learning_curve, simulate_readout

    task = SparseTask(length, signals, strength, prior)
    query: dict[str, Any] = {
        "cosine": cosine,
        "sharpness": sharpness,
        "loss": loss,
        "ridge": ridge,
    }
    sizes, models = _numbers(alpha, "--alpha"), _models(model)
    if dim is not None and ridge == 0:
        raise BadInput("--dim trains with a positive --ridge; the limit ridge 0 is theory only.")
    frames = []
    with progress_bar("readout", shown=not json) as progress:
        for kind in models:
            for result in learning_curve(task, sizes, kind, **query):
                frame = result.to_frame()
                if dim is not None:
                    drawn = simulate_readout(
                        task,
                        result.alpha,
                        kind,
                        dim=dim,
                        replicates=replicates,
                        seed=seed,
                        **query,
                    )
                    for name in ("test_error", "train_error"):
                        frame[f"{name}_measured"] = drawn.mean[name]
                        frame[f"{name}_stderr"] = drawn.stderr[name]
                frames.append(frame)
                progress(len(frames), len(models) * len(sizes))
    table = pd.concat(frames, ignore_index=True)
    title = f"L {length}, R {signals}, strength {strength:g}, {loss}, ridge {ridge:g}"
    notes = _save(table, curves_figure(table, title), out, "sparse-curves")
    columns = ["model", "alpha", "test_error", "train_error", "train_loss", "train_margin"]
    columns += [str(c) for c in table if str(c).endswith(("_measured", "_stderr"))]
    _show(table if json else table[[*columns, "residual"]], title, json, notes)


app.command("readout", hidden=True)(curves)


@app.command()
def capacity(
    length: Length = 10,
    signals: Signals = 1,
    strength: Annotated[Numbers, typer.Option("--strength", help="One or several.")] = "0,2,4,6",
    prior: Prior = 0.5,
    model: Model = "all",
    cosine: Cosine = 0.9,
    sharpness: Sharpness = 1.0,
    dim: Annotated[
        int | None, typer.Option(help="Also solve linear programs at this dimension.")
    ] = None,
    replicates: Annotated[int, typer.Option(help="Draws for --dim.")] = 20,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Largest n/d at which bags are still perfectly separable."""
    from attnlimit.sparse import SparseTask, simulate_capacity
    from attnlimit.sparse import capacity as solve

    rows = []
    strengths, models = _numbers(strength, "--strength"), _models(model)
    with progress_bar("capacity", shown=not json) as progress:
        for theta in strengths:
            task = SparseTask(length, signals, float(theta), prior)
            for kind in models:
                star = float(solve(task, kind, cosine=cosine, sharpness=sharpness))
                row: dict[str, Any] = {"model": kind, "strength": theta, "alpha_star": star}
                for ratio in (0.9, 1.0, 1.1) if dim is not None else ():
                    drawn = simulate_capacity(
                        task,
                        ratio * star,
                        kind,
                        dim=dim or 0,
                        replicates=replicates,
                        seed=seed,
                        cosine=cosine,
                        sharpness=sharpness,
                    )
                    row[f"separable at {ratio:g}"] = drawn.mean["separable"]
                rows.append(row)
                progress(len(rows), len(strengths) * len(models))
    notes = [] if dim is None else [f"separable: fraction of {replicates} draws at d = {dim}."]
    _show(pd.DataFrame(rows), f"Capacity, L {length}, R {signals}", json, notes)


@app.command()
def oracle(
    length: Length = 10,
    signals: Signals = 1,
    strength: Annotated[Numbers, typer.Option("--strength", help="One or several.")] = "1,2,3,4,5",
    prior: Prior = 0.5,
    json: AsJson = False,
) -> None:
    """Errors of classifiers that know the signal, and the Bayes floor."""
    from attnlimit.sparse import SparseTask, bayes_error, oracle_error

    rows = []
    strengths = _numbers(strength, "--strength")
    with progress_bar("oracle", shown=not json) as progress:
        for theta in strengths:
            task = SparseTask(length, signals, float(theta), prior)
            floor, attention = bayes_error(task), oracle_error(task, "attention")
            rows.append(
                {
                    "strength": theta,
                    "bayes": float(floor),
                    "attention": float(attention),
                    "linear": float(oracle_error(task, "pooled")),
                    "attention sharpness": attention.details.get("sharpness", 0.0),
                    "bayes numerical error": floor.numerical_error,
                    "attention numerical error": attention.numerical_error,
                }
            )
            progress(len(rows), len(strengths))
    _show(pd.DataFrame(rows), f"Errors with the signal known, L {length}, R {signals}", json)


@app.command()
def separation(
    error: Annotated[float, typer.Option(help="Error to reach.")] = 0.05,
    length: Annotated[Numbers, typer.Option("--length", "-L")] = "16,256,4096,65536,1048576",
    signals: Signals = 1,
    prior: Prior = 0.5,
    json: AsJson = False,
) -> None:
    """Strength that each classifier needs, against the length: log L against sqrt L."""
    from attnlimit.sparse import strength_needed

    rows = []
    lengths = [count(value, "--length") for value in _numbers(length, "--length").tolist()]
    with progress_bar("strength", shown=not json) as progress:
        for size in lengths:
            row: dict[str, Any] = {"length": size}
            for kind in ("bayes", "attention", "pooled"):
                row[kind] = strength_needed(error, size, kind, signals=signals, prior=prior)
            row["sqrt(2 log L)"] = float(np.sqrt(2 * np.log(size)))
            rows.append(row)
            progress(len(rows), len(lengths))
    frame = pd.DataFrame(rows).rename(columns={"pooled": "linear"})
    _show(frame, f"Strength needed for {error:.1%} error, R {signals}", json)


@app.command()
def phase(
    length: Length = 10,
    signals: Signals = 1,
    prior: Prior = 0.5,
    strength: Annotated[Numbers, typer.Option("--strength", help="Strengths.")] = "1,2,3,4,5",
    alpha: Annotated[Numbers, typer.Option(help="Bags over dimension.")] = "1:32:4",
    ridge: Ridge = 0.1,
    loss: Loss = "logistic",
    json: AsJson = False,
) -> None:
    """Which classifier has the least error, at each strength and number of bags."""
    from attnlimit.sparse import SparseTask, best_split, readout

    rows = []
    strengths, sizes = _numbers(strength, "--strength"), _numbers(alpha, "--alpha")
    with progress_bar("phase", shown=not json) as progress:
        for theta in strengths:
            task = SparseTask(length, signals, float(theta), prior)
            for size in sizes:
                split = best_split(task, float(size), ridge=ridge, loss=loss)
                errors = {"attention": split.test_error} | {
                    kind: readout(task, float(size), kind, ridge=ridge, loss=loss).test_error
                    for kind in ("pooled", "vectorized")
                }
                winner = min(errors, key=lambda kind: errors[kind])
                rows.append(
                    {"strength": theta, "alpha": size, **errors}
                    | {"best": winner, "query's share": split.fraction}
                )
                progress(len(rows), len(strengths) * len(sizes))
    note = "attention spends its share of the same bags on the query, chosen best."
    _show(pd.DataFrame(rows), f"Who wins where, L {length}, R {signals}", json, [note])


@app.command()
def plan(
    bags: Annotated[Path, typer.Argument(help="CSV or parquet with bag ids, or a folder of .npy.")],
    budget: Annotated[Numbers, typer.Option(help="Numbers of labelled bags.")] = "50,100,200,400",
    bag: Annotated[str, typer.Option(help="Column that names the bag.")] = "bag",
    label: Annotated[str, typer.Option(help="Column with the bag's label.")] = "label",
    ridge: Ridge = 0.1,
    max_dim: Annotated[int | None, typer.Option(help="Keep this many components.")] = None,
    seed: Seed = 0,
    out: Out = None,
    json: AsJson = False,
) -> None:
    """Predict mean and attention pooling on your bags from a pilot set, and recommend one."""
    from attnlimit.report.sparse_figures import plan_figure
    from attnlimit.sparse import plan_bags, read_bags

    pilot = read_bags(bags, bag, label)
    budgets = [count(value, "--budget") for value in _numbers(budget, "--budget").tolist()]
    with progress_bar("plan", shown=not json) as progress:
        found = plan_bags(
            pilot, budgets, ridge=ridge, max_dim=max_dim, seed=seed, progress=progress
        )
    frame = found.to_frame()
    written = _save(
        frame, plan_figure(frame, found.floor, found.recommendation), out, "sparse-plan"
    )
    task = found.estimate.task
    if json:
        print_json(
            {
                "task": {
                    "length": task.length,
                    "signals": task.signals,
                    "strength": task.strength,
                    "prior": task.prior,
                    "dim": found.estimate.dim,
                    "signal_fraction": found.estimate.signal_fraction,
                },
                "checks": found.estimate.to_frame(),
                "table": frame,
                "recommendation": found.recommendation,
                "notes": written,
            }
        )
        return
    console().print(str(found.estimate), soft_wrap=True, markup=False)
    _show(frame, "Predicted test error", False, [found.recommendation, *written])
