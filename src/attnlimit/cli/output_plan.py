"""`attnlimit plan --kl 0.01`: what may a model read so that its output stays within a target?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from attnlimit.cli.show import print_json, say
from attnlimit.models import plan_output
from attnlimit.survey import Question


@dataclass(frozen=True)
class OutputOptions:
    """A target of the model's output, and how it may be reached."""

    kl: Annotated[float | None, Option(help="Nats of the next token that may be lost: 0.01.")] = (
        None
    )
    perplexity: Annotated[float | None, Option(help="Factor by which it may grow: 1.01.")] = None
    cosine: Annotated[float | None, Option(help="What an embedding's angle keeps: 0.999.")] = None
    per: Annotated[str, Option(help="One size for the model, each layer, or each head.")] = "model"
    cost: Annotated[str, Option(help="What is made small: read, bytes or stored.")] = "read"
    scheme: Annotated[str, Option(help="threshold, or a sampler such as top-k:64+192.")] = (
        "threshold"
    )

    @property
    def asked(self) -> bool:
        """Whether the output's target was given."""
        return any(one is not None for one in (self.kl, self.perplexity, self.cosine))


def show_output_plan(
    question: Question, asked: OutputOptions, file: Path | None, json: bool
) -> None:
    """Plan on the question's stretches, write the plan, and print it."""
    plan = plan_output(
        question.loaded(),
        [list(stretch.ids) for stretch in question.stretches],
        kl=asked.kl,
        perplexity=asked.perplexity,
        cosine=asked.cosine,
        per=asked.per,
        cost=asked.cost,
        scheme=asked.scheme,
        seed=question.seed,
    )
    written = plan.write(file) if file is not None else None
    if json:
        print_json({**plan.to_dict(), "file": written})
        return
    say(plan)
    if written is not None:
        again = f"attnlimit try --model {question.model} --plan {written}"
        say(f"plan  {written}; measure it: {again}")
