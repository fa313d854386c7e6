"""`attnlimit sparse enough`: how many instances of a bag an attention pooling must read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnlimit.checks import count, one_of
from attnlimit.cli.options import with_options
from attnlimit.cli.show import progress_bar
from attnlimit.cli.sparse_options import BagsFile, Numbers, Shown, numbers
from attnlimit.errors import BadInput

POOLINGS = ("two-step", "joint", "mean")


@with_options
def enough(
    bags: BagsFile,
    n: Annotated[Numbers, typer.Option("-n", "--n", help="Instances drawn or kept.")] = "2,4,8,16",
    pooling: Annotated[
        str, typer.Option(help="What plan calls attention (two-step), joint, or mean.")
    ] = "two-step",
    attention: Annotated[
        Path | None, typer.Option(help="State dict (.pt) of a gated attention of your own.")
    ] = None,
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="iid, without-replacement, top-k, threshold ...; may be repeated."),
    ] = None,
    change: Annotated[float, typer.Option(help="Share of decisions that may change.")] = 0.01,
    draws: Annotated[int, typer.Option(help="Draws of each bag to measure.")] = 200,
    most: Annotated[int, typer.Option(help="Ask at most so many bags.")] = 100,
    bag: Annotated[str, typer.Option(help="Column that names the bag.")] = "bag",
    label: Annotated[str, typer.Option(help="Column with the bag's label.")] = "label",
    *,
    shown: Shown,
) -> None:
    """Error of the pooled feature, and decisions that change, when n instances are read."""
    from attnlimit.report.enough_page import enough_figure, enough_page
    from attnlimit.report.page import write_page
    from attnlimit.sparse import enough as ask
    from attnlimit.sparse import read_bags
    from attnlimit.sparse.instances.enough import SAMPLERS

    chosen = [_sampler(one) for one in sampler or ()]
    sizes = [count(value, "--n", smallest=2) for value in numbers(n, "--n")]
    asked = _pooling(pooling, attention)
    labelled = read_bags(bags, bag, label)
    with progress_bar("enough", shown=not shown.json) as progress:
        found = ask(
            labelled,
            asked,
            sizes,
            samplers=chosen or SAMPLERS,
            change=change,
            draws=draws,
            most=most,
            seed=shown.seed,
            progress=progress,
        )
    figure = enough_figure(found)
    notes = [found.headline(), *shown.save(found.to_frame(), figure, "sparse-enough")]
    if shown.out is not None:
        command = f"attnlimit sparse enough {bags} --n {n} --draws {draws} --seed {shown.seed}"
        page = enough_page(found, f"How many instances are enough: {bags.name}", command)
        notes.append(f"page: {write_page(shown.out / 'enough.html', page)}")
    table = found.to_frame() if shown.json else found.wide()
    shown.show(table, "What n instances of a bag give", notes, enough=found.enough)


def _sampler(text: str) -> Any:
    """Return the sampler that is named, of any size: --n replaces it."""
    from attnlimit.samplers.spec import NAMES, parse_sampler

    return parse_sampler(f"{text}:1" if text in NAMES else text)


def _pooling(name: str, attention: Path | None) -> Any:
    from attnlimit.sparse import AttentionPooling, GatedAttention, MeanPooling

    one_of(name, POOLINGS, "--pooling")
    if attention is None:
        return MeanPooling() if name == "mean" else AttentionPooling(name)
    import torch

    if not attention.is_file():
        raise BadInput(f"There is no file {attention}; give the state dict of a gated attention.")
    try:
        state = torch.load(attention, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can trip the reader anywhere
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise BadInput(f"{attention} could not be read as a state dict: {reason}.") from None
    if not isinstance(state, dict):
        raise BadInput(f"{attention} must hold a state dict, got {type(state).__name__}.")
    return GatedAttention.from_state(state)
