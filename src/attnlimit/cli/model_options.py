"""What can be asked of `demo`, `measure` and `plan`? Their common options, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from attnlimit.budgets.terms import Terms
from attnlimit.survey import Question, ask

REPLICATES = 100


@dataclass(frozen=True)
class ModelOptions:
    """Which model, on what, and how well."""

    model: Annotated[
        str, typer.Option("--model", help="minilm, smollm2, a folder with a model, or a hub id.")
    ] = "minilm"
    pickled_weights: Annotated[
        str | None,
        typer.Option(
            "--pickled-weights",
            help="The one pickled file of a model folder that may be read, such as "
            "pytorch_model.bin; tensors only.",
        ),
    ] = None
    text: Annotated[
        list[str],
        typer.Option(
            "--text",
            help="wikipedia:TITLE, a file, a folder, or - for standard input; may be repeated.",
        ),
    ] = field(default_factory=lambda: ["wikipedia:Anarchism"])
    tokens: Annotated[int, typer.Option("--tokens", help="Context: tokens of a stretch.")] = 512
    parts: Annotated[
        int, typer.Option("--parts", help="Stretches of each text that budgets are planned on.")
    ] = 4
    epsilon: Annotated[float, typer.Option("--epsilon", help="Relative error.")] = 0.1
    delta: Annotated[float, typer.Option("--delta", help="Chance of missing it.")] = 0.05
    quantile: Annotated[float, typer.Option("--quantile", help="Share of queries covered.")] = 0.99
    layer: Annotated[
        list[int] | None, typer.Option("--layer", help="Only this layer; may be repeated.")
    ] = None

    def question(self, **more: Any) -> Question:
        """Return what is asked, with what else it takes."""
        return ask(
            self.model,
            *self.text,
            tokens=self.tokens,
            parts=self.parts,
            terms=Terms(self.epsilon, self.delta, self.quantile),
            layers=self.layer,
            pickled=self.pickled_weights,
            **more,
        )
