"""`attnlimit plan`: what may a model read so that its output stays within a target?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from typer import Option

import attnlimit
from attnlimit.cli.show import progress_bar
from attnlimit.models import OutputPlan
from attnlimit.report.model_page import model_page
from attnlimit.report.page import write_page
from attnlimit.runs.record import versions
from attnlimit.survey import (
    SCHEMAS,
    Question,
    Survey,
    output_parts,
    plans_for,
    survey_output,
    survey_plans,
)


@dataclass(frozen=True)
class OutputOptions:
    """A target of the model's output, and how it may be reached."""

    kl: Annotated[
        float | None, Option(help="Nats of the next token that may be lost, 0.01 if not said.")
    ] = None
    perplexity: Annotated[float | None, Option(help="Factor by which it may grow: 1.01.")] = None
    cosine: Annotated[
        float | None, Option(help="Cosine that an embedding keeps, 0.999 if not said.")
    ] = None
    per: Annotated[str, Option(help="What has a size of its own: model, layer or head.")] = "model"
    cost: Annotated[
        str,
        Option(help="Made small: keys read (read), bytes moved (bytes) or keys stored (stored)."),
    ] = "read"
    scheme: Annotated[
        str, Option(help="How keys are chosen: threshold, or a sampler such as top-k:64+192.")
    ] = "threshold"

    @property
    def asked(self) -> bool:
        """Whether the output's target was given."""
        return any(one is not None for one in (self.kl, self.perplexity, self.cosine))

    def goal(self) -> Mapping[str, Any]:
        """Return what a question takes."""
        return asdict(self)


def quick_plan(question: Question, shown: bool) -> OutputPlan:
    """Plan for the question's goal, and measure nothing; from captures alone if it is of such."""
    with progress_bar("passages", shown=shown) as progress:
        return plans_for(question, question.seed, [question.goal.allowed], progress)[0]


def measured_plan(question: Question, shown: bool) -> Survey:
    """Plan for the question's goal, and measure that plan."""
    with progress_bar("passages", shown=shown) as progress:
        found = survey_plans(question, question.seed, [question.goal.allowed], progress)
    return _survey(question, [found])


def rivalled_plan(question: Question, shown: bool) -> Survey:
    """Plan for the question's goal and others; measure that plan and its rivals, if all can run."""
    parts = output_parts()
    found = []
    with progress_bar("plan and rivals", shown=shown) as progress:
        for done, part in enumerate(parts):
            progress(done, len(parts))
            found.append(survey_output(question, part, question.seed))
    return _survey(question, found)


def _survey(question: Question, found: Iterable[Mapping[str, list[Any]]]) -> Survey:
    rows: dict[str, list[Any]] = {name: [] for name in SCHEMAS}
    for part in found:
        for name, some in part.items():
            rows[name] += some
    tables = {name: pd.DataFrame(rows[name], columns=SCHEMAS[name].names) for name in SCHEMAS}
    return Survey(question, tables)


def write_plan_page(survey: Survey, path: Path) -> Path:
    """Write the page of a plan that no run folder holds."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"created": made, "version": attnlimit.__version__, "versions": versions()}
    config = {"config": survey.question.to_config()}
    return write_page(path, model_page(record | config, survey, path.parent))
