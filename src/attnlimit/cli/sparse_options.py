"""Which options do the sparse commands share, and what do they do with a result?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlimit.checks import one_of, real_array
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import console, print_json, print_table, progress_bar
from attnlimit.errors import BadInput

Numbers = str
Strengths = Annotated[Numbers, typer.Option("--strength", help="Sizes of the signal, noise is 1.")]
Alphas = Annotated[Numbers, typer.Option("--alpha", help="Bags over dimension.")]
Loss = Annotated[str, typer.Option("--loss", help="logistic, square or hinge.")]
Ridge = Annotated[float, typer.Option("--ridge", help="Ridge on the readout; 0: a vanishing one.")]
Model = Annotated[str, typer.Option("--model", help="attention, pooled, vectorized or all.")]
BagsFile = Annotated[
    Path, typer.Argument(help="CSV or parquet with bag ids, or a folder of .npy, .npz, .pt or .h5.")
]
Draws = Annotated[int, typer.Option("--draws", help="Also apply the rules to so many drawn bags.")]


@dataclass(frozen=True)
class Bags:
    """What a bag is."""

    length: Annotated[int, typer.Option("--length", "-L", help="Tokens in a bag.")] = 10
    signals: Annotated[int, typer.Option("--signals", "-R", help="Signals in a positive bag.")] = 1
    prior: Annotated[float, typer.Option("--prior", help="Probability of a positive bag.")] = 0.5


@dataclass(frozen=True)
class Task(Bags):
    """Bags with one strength of the signal."""

    strength: Annotated[float, typer.Option("--strength", help="Size of the signal.")] = 5.0


@dataclass(frozen=True)
class Query:
    """What is known of the query."""

    cosine: Annotated[float, typer.Option("--cosine", help="Query's cosine with the signal.")] = 0.9
    sharpness: Annotated[float, typer.Option("--sharpness", help="Of the query: beta |q|.")] = 1.0


@dataclass(frozen=True)
class Steps:
    """Sizes of the gradient steps."""

    lr_w: Annotated[float, typer.Option(help="First step on the readout.")] = 1.0
    lr_b: Annotated[float, typer.Option(help="First step on the bias.")] = 1.0
    lr_q: Annotated[float, typer.Option(help="Second step, on the query.")] = 1.0
    beta: Annotated[float, typer.Option(help="Inverse temperature of the softmax.")] = 1.0


@dataclass(frozen=True)
class Drawn:
    """What is measured beside the prediction."""

    dim: Annotated[int, typer.Option(help="Draw bags of this dimension too; 0: none.")] = 0
    replicates: Annotated[int, typer.Option(help="Draws for --dim.")] = 8


@dataclass(frozen=True)
class Shown:
    """What is done with the result."""

    seed: Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")] = 0
    out: Annotated[Path | None, typer.Option("--out", help="Folder for a figure and a table.")] = (
        None
    )
    json: AsJson = False

    def run(self, name: str, overrides: dict[str, Any]) -> None:
        """Run an experiment with these settings, and show its table."""
        from attnlimit.reproduce import run

        with progress_bar(name, shown=not self.json) as move:
            result = run(
                name, overrides, seed=self.seed, progress=lambda at: move(at.done, at.total)
            )
        figure = None if self.out is None else result.figure
        notes = [*result.remarks, *self.save(result.table, figure, name)]
        self.show(result.table, result.experiment.title, notes)

    def save(self, frame: Any, figure: Any, name: str) -> list[str]:
        """Write the figure and the table if a folder was given; say where."""
        if self.out is None:
            return []
        from attnlimit.report.figures import draw

        self.out.mkdir(parents=True, exist_ok=True)
        frame.to_csv(self.out / f"{name}.csv", index=False)
        paths = [self.out / f"{name}.csv", *draw(figure, self.out, name)]
        return ["written: " + "  ".join(str(path) for path in paths)]

    def show(self, frame: Any, title: str, notes: list[str], **more: Any) -> None:
        """Print the table and what there is to say, `more` in JSON only."""
        if self.json:
            print_json({"title": title, **more, "table": frame, "notes": notes})
            return
        print_table(frame, title)
        for note in notes:
            console().print(f"  {note}", soft_wrap=True, markup=False)


def numbers(text: str, name: str) -> list[float]:
    """Read "1,2,5" or "0.5:8:6" (from, to, how many, spaced geometrically)."""
    import numpy as np

    try:
        if ":" in text:
            low, high, many = text.split(":")
            return list(np.geomspace(float(low), float(high), int(many)).tolist())
        return list(real_array([float(part) for part in text.split(",")], name, ndim=1).tolist())
    except ValueError:
        raise BadInput(
            f"{name} must be numbers like 1,2,5 or a range like 0.5:8:6 (from, to, how many), "
            f"got {text!r}."
        ) from None


def models(model: str) -> list[str]:
    """Return the classifiers that --model names."""
    from attnlimit.sparse.task import MODELS

    one_of(model, (*MODELS, "all"), "--model")
    return list(MODELS) if model == "all" else [model]
