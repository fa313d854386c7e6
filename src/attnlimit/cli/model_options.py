"""What can be asked of `demo`, `measure` and `plan`? Their common options, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from typer import Argument, Option

from attnlimit.budgets.terms import Terms
from attnlimit.errors import BadInput
from attnlimit.survey import Question, ask, ask_stored

PICKLED = "The one pickled file of a model folder to read, as pytorch_model.bin; tensors only."
CAPTURE = "In place of model and text: a capture's folder, or own tensors q.npy k.npy v.npy."
DEVICE = "Where the model runs: auto, cpu, cuda, mps, or several for one larger than a device."
DTYPE = "What it runs in: float32, bfloat16, float16 or float64; that of its weights by default."
TEXT = "wikipedia:TITLE, sotu:TITLE, a file, a folder, or - for stdin; may be repeated."


@dataclass(frozen=True)
class ModelOptions:
    """Which model, on what, and how well."""

    model: Annotated[str, Option(help="minilm, smollm2, a model folder, or a hub id.")] = "minilm"
    pickled_weights: Annotated[str | None, Option(help=PICKLED)] = None
    text: Annotated[list[str], Option(help=TEXT)] = field(
        default_factory=lambda: ["wikipedia:Anarchism"]
    )
    tokens: Annotated[int, Option(help="Context: tokens of a passage.")] = 512
    parts: Annotated[int, Option(help="Passages of each text that plans are made on.")] = 4
    epsilon: Annotated[float | None, Option(help="Of a head by itself: relative error, 0.1.")] = (
        None
    )
    delta: Annotated[float | None, Option(help="Chance that it is missed, 0.05.")] = None
    quantile: Annotated[float | None, Option(help="Share of queries that keep it, 0.99.")] = None
    layer: Annotated[list[int] | None, Option(help="Only this layer; may be repeated.")] = None
    device: Annotated[str, Option(help=DEVICE)] = "auto"
    dtype: Annotated[str | None, Option(help=DTYPE)] = None
    capture: Annotated[str | None, Option(help=CAPTURE)] = None
    two_sided: Annotated[
        bool, Option("--two-sided", help="Own tensors: a query sees the keys after it, too.")
    ] = False
    more_files: Annotated[list[str] | None, Argument(metavar="[k.npy v.npy]", hidden=True)] = None

    @property
    def single(self) -> bool:
        """Whether something was said that concerns single heads."""
        said = (self.epsilon, self.delta, self.quantile, self.layer)
        return any(one is not None for one in said)

    def question(self, **more: Any) -> Question:
        """Return what is asked, with what else it takes."""
        said = {"epsilon": self.epsilon, "delta": self.delta, "quantile": self.quantile}
        if self.two_sided and not self.more_files:
            raise BadInput("--two-sided is for own tensors: --capture q.npy k.npy v.npy.")
        terms = Terms(**{name: value for name, value in said.items() if value is not None})
        if self.capture is not None:
            return ask_stored(
                self.capture,
                *(self.more_files or ()),
                causal=not self.two_sided,
                terms=terms,
                layers=self.layer,
                **more,
            )
        if self.more_files:
            raise BadInput(f"{self.more_files[0]!r} is no option; files come after --capture.")
        return ask(
            self.model,
            *self.text,
            tokens=self.tokens,
            parts=self.parts,
            terms=terms,
            layers=self.layer,
            pickled=self.pickled_weights,
            device=self.device,
            dtype=self.dtype,
            **more,
        )
