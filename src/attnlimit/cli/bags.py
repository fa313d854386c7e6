"""`attnlimit bags`: plans for multiple-instance data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlimit.checks import count, one_of, probability
from attnlimit.cli import options
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.bags import Bags

app = typer.Typer(
    help="Multiple-instance data: labelled bags needed, and instances of a bag to read.",
    no_args_is_help=True,
)
POOLINGS = {
    "attention": "two-step",
    "joint": "joint",
    "mean": "mean",
    "two-step": "two-step",
    "joint attention": "joint",
    "mean pooling": "mean",
}
"""Names of `--pooling`, those of the plan among them."""
BagsFile = Annotated[
    Path,
    typer.Argument(help="Table (.csv, .parquet) with bag ids, .npz with X and y, or a folder."),
]
BagColumn = Annotated[str, typer.Option(help="Column of the bag ids.")]
LabelColumn = Annotated[str, typer.Option(help="Column of the bags' labels.")]
Positive = Annotated[str | None, typer.Option(help="Label of the class with the signal.")]
Out = Annotated[Path, typer.Option(help="Folder for page, figure and table.")]


def write_files(out: Path, name: str, result: Any, figure: Any, page: str) -> list[str]:
    """Write table, figure and page; return lines that name them."""
    from attnlimit.report.figures import draw
    from attnlimit.report.page import write_page

    out.mkdir(parents=True, exist_ok=True)
    result.to_frame().to_csv(out / f"{name}.csv", index=False)
    files = [out / f"{name}.csv", *draw(figure, out, name)]
    written = write_page(out / f"{name}.html", page)
    return [f"page: {written}", "written: " + "  ".join(map(str, files))]


def show(result: Any, table: Any, title: str, notes: list[str], json: bool) -> None:
    """Print the answer, a table and notes, or all that the result holds as JSON."""
    if json:
        options.print_json({**result.to_dict(), "title": title, "notes": notes})
        return
    options.say(result.headline())
    options.print_table(table, title)
    options.say(*(f"  {note}" for note in notes))


def this_command(context: typer.Context) -> str:
    """Return the command that is running."""
    return shlex.join(["attnlimit", *map(str, context.obj)])


def contents(bags: Bags) -> str:
    """Return what was read, for a column or a label that was mistaken to show."""
    lengths, positive = bags.lengths, int((bags.signs > 0).sum())
    return (
        f"Read {len(bags)} bags of {lengths.min()} to {lengths.max()} instances with {bags.dim} "
        f"features each; {positive} are {bags.classes[1]}, the class with the signal."
    )


def numbers(text: str, name: str, smallest: int) -> list[int]:
    """Read whole numbers like 100,200,400."""
    try:
        return [count(float(part), name, smallest=smallest) for part in text.split(",")]
    except BadInput:
        raise
    except ValueError:
        raise BadInput(f"{name} must be numbers like 100,200,400; got {text!r}.") from None


@app.command()
def plan(
    context: typer.Context,
    bags: BagsFile,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Numbers of labelled bags, such as 100,200.", show_default="1, 2, 4 and 8 pilots"
        ),
    ] = None,
    error: Annotated[float | None, typer.Option(help="Maximum error on new bags.")] = None,
    bag: BagColumn = "bag",
    label: LabelColumn = "label",
    positive: Positive = None,
    seed: options.Seed = 0,
    out: Out = Path("bags"),
    json: options.AsJson = False,
) -> None:
    """Number of labelled bags that suffice, and the pooling to use."""
    budgets = None if budget is None else numbers(budget, "--budget", 4)
    if error is not None:
        probability(error, "--error")
    from attnlimit.bags import plan as make_plan
    from attnlimit.bags import read_bags
    from attnlimit.report.bags_page import plan_figure, plan_page

    pilot = read_bags(bags, bag, label, positive=positive)
    with options.progress_bar("plan", shown=not json) as progress:
        result = make_plan(pilot, budgets, error=error, seed=seed, progress=progress)
    python = _python(bags, {"bag": bag, "label": label, "positive": positive}, result.estimator)
    page = plan_page(result, this_command(context), python)
    notes = [contents(pilot), *result.remarks()]
    notes += [*write_files(out, "plan", result, plan_figure(result), page)]
    show(result, result.formatted(), "Error on new bags", notes, json)


def _python(bags: Path, columns: dict[str, str | None], estimator: Any) -> str:
    """Return Python that reads the bags and fits the recommended pooling."""
    usual = {"bag": "bag", "label": "label", "positive": None}
    given = [f", {key}={value!r}" for key, value in columns.items() if value != usual[key]]
    text = " ".join(str(estimator).split())
    return (
        "import attnlimit as al\n"
        f"from attnlimit.bags import {type(estimator).__name__}\n\n"
        f"bags = al.bags.read_bags({str(bags)!r}{''.join(given)})\n"
        f"model = {text}\n"
        "model.fit(bags.instances, bags.labels)\n"
        "model.predict(bags.instances)  # or other arrays (instances, features)"
    )


@app.command()
def instances(
    context: typer.Context,
    bags: BagsFile,
    n: Annotated[str, typer.Option("-n", "--n", help="Numbers of instances read.")] = "2,4,8,16",
    pooling: Annotated[str, typer.Option(help="Pooling: attention, joint or mean.")] = "attention",
    attention: Annotated[
        Path | None, typer.Option(help="State dict (.pt) of a trained gated attention.")
    ] = None,
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="Sampler, such as iid, top-k or threshold; may be repeated."),
    ] = None,
    change: Annotated[
        float, typer.Option(help="Maximum fraction of decisions that change.")
    ] = 0.01,
    draws: Annotated[int, options.whole("Number of draws of each bag.")] = 200,
    most: Annotated[int, options.whole("Maximum number of bags.")] = 100,
    bag: BagColumn = "bag",
    label: LabelColumn = "label",
    positive: Positive = None,
    seed: options.Seed = 0,
    out: Out = Path("bags"),
    json: options.AsJson = False,
) -> None:
    """Number of instances of a bag that an attention pooling must read."""
    sizes = numbers(n, "--n", 2)
    one_of(pooling, tuple(POOLINGS), "--pooling")
    probability(change, "--change")
    rules = [_sampler(text) for text in sampler or ()]
    from attnlimit.bags import instances as instance_budget
    from attnlimit.bags import read_bags
    from attnlimit.bags.instance_budget import SAMPLERS
    from attnlimit.report.bags_page import instances_figure, instances_page

    model = _pooling(pooling, attention)
    labelled = read_bags(bags, bag, label, positive=positive)
    how: dict[str, Any] = {"change": change, "draws": draws, "most": most, "seed": seed}
    with options.progress_bar("instances", shown=not json) as progress:
        result = instance_budget(
            labelled, model, sizes, samplers=rules or SAMPLERS, **how, progress=progress
        )
    page = instances_page(result, f"Instances that are enough: {bags.name}", this_command(context))
    notes = [contents(labelled)]
    notes += write_files(out, "instances", result, instances_figure(result), page)
    show(result, result.wide(), "Errors when n instances of a bag are read", notes, json)


def _sampler(text: str) -> Any:
    """Return the named sampler, of any size: --n replaces it."""
    from attnlimit.samplers.spec import parse_sampler, sampler_names

    return parse_sampler(f"{text}:1" if text in sampler_names() else text)


def _pooling(name: str, attention: Path | None) -> Any:
    from attnlimit.bags import AttentionPooling, GatedAttention, MeanPooling
    from attnlimit.bags.reading import reason

    if attention is None:
        training = POOLINGS[name]
        return MeanPooling() if training == "mean" else AttentionPooling(training)
    import torch

    if not attention.is_file():
        raise BadInput(f"There is no file {attention}; give the state dict of a gated attention.")
    try:
        state = torch.load(attention, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere in its reader
        raise BadInput(
            f"{attention} could not be read as a state dict: {reason(error)}; write one with "
            "torch.save."
        ) from None
    if not isinstance(state, dict):
        raise BadInput(
            f"{attention} must hold a state dict, got {type(state).__name__}; "
            "save net.state_dict()."
        )
    return GatedAttention.from_state(state)
