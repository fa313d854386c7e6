"""`attnlimit capture`: what a model's heads read, written to a folder layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlimit.cli.model_options import DEVICE, DTYPE, PICKLED, TEXT
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, progress_bar, say
from attnlimit.errors import BadInput
from attnlimit.survey import Question, ask, write_captures
from attnlimit.survey.stored import part_folder


def capture(
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    model: Annotated[
        str, typer.Option(help="minilm, smollm2, a model folder, or a hub id.")
    ] = "minilm",
    text: Annotated[list[str] | None, typer.Option(help=TEXT)] = None,
    tokens: Annotated[int, typer.Option(help="Context: tokens of a passage.")] = 512,
    parts: Annotated[int, typer.Option(help="Passages of each text.")] = 4,
    layer: Annotated[
        list[int] | None, typer.Option(help="Only this layer; may be repeated.")
    ] = None,
    pickled_weights: Annotated[str | None, typer.Option(help=PICKLED)] = None,
    probes: Annotated[
        int | None,
        typer.Option(help="Keep gradients of so many backward passes too, as 4, for plan --kl."),
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="With --probes, of which output: kl or cosine; by the model.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the probes.")] = 0,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    json: AsJson = False,
) -> None:
    """Write the queries, keys and values of every head, for commands that take --capture.

    Stopped and started again, it keeps the layers that are whole. plan, measure, tokens and
    reproduce read the folder without the model, and without transformers. With --probes so does
    plan --kl, which plans for the model's output.
    """
    if probes is not None and layer is not None:
        raise BadInput("The output is moved by every layer: leave out --layer, or --probes.")
    if output is not None and probes is None:
        raise BadInput(f"--output {output} says of what probes are: add --probes 4.")
    texts = text or ["wikipedia:Anarchism"]
    question = ask(
        model,
        *texts,
        tokens=tokens,
        parts=parts,
        layers=layer,
        pickled=pickled_weights,
        device=device,
        dtype=dtype,
        seed=seed,
    )
    with progress_bar("passages", shown=not json) as progress:
        question = write_captures(question, out, progress, probes=probes, output=output)
    count = len(question.passages)
    folders = [part_folder(out, part) for part in range(count)]
    size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
    if json:
        about = {"model": question.model, "weights": question.weights, "tokens": question.tokens}
        print_json({"folder": out, "passages": count, "bytes": size, **about})
        return
    say(
        f"{question.model}: {_many(len(question.layers), 'layer')} of {question.heads} heads on "
        f"{_many(count, 'passage')} of {question.tokens} tokens, {size / 1e6:.1f} MB",
        f"capture  {out}; plan from it: attnlimit plan --capture {out}{_target(question, probes)}",
    )


def _target(question: Question, probes: int | None) -> str:
    """Return the target that can be planned for, if gradients are kept."""
    if probes is None:
        return ""
    kept = question.captures()[0].probes
    return " --kl 0.01" if kept is not None and kept.output == "kl" else " --cosine 0.999"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
