"""How is a survey run? As shards of the output and of each head, combined into its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.runs import RunFolder
from attnlimit.runs.experiment import Config, Shard, whole
from attnlimit.survey import (
    SCHEMAS,
    Question,
    Survey,
    output_parts,
    survey_head,
    survey_output,
)
from attnlimit.survey.stored import Stored


class ModelRun:
    """The run behind `demo` and `measure`; its configuration is `Question.to_config()`."""

    def __init__(self, store: Callable[[], Stored] | None = None) -> None:
        self.store = store  # makes the files that workers read, when they are first needed

    name = "model"
    path = "attnlimit.reproduce.model:EXPERIMENT"
    schemas = SCHEMAS
    split = staticmethod(whole)

    def shards(self, config: Config) -> Iterator[Shard]:
        """Cut the survey into the parts of the output, the longest shards, and its heads."""
        question = Question.from_config(config)
        for part in output_parts():
            yield {**config, "part": part}
        files = {} if self.store is None else {"stored": asdict(self.store())}
        for layer in question.layers:
            for head in range(question.heads):
                yield {**config, **files, "layer": layer, "head": head}

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Survey a part of the output or a head: one row, whose cells are rows of each table."""
        question = Question.from_config(shard)
        if "part" in shard:
            found = _output(question, shard["part"], int(seed.generate_state(1)[0]))
        else:
            found = survey_head(question, shard["layer"], shard["head"], seed)
        return pd.DataFrame({name: [found.get(name, [])] for name in SCHEMAS})

    def combine(self, config: Config, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Return the tables of the survey."""
        return {
            name: pd.DataFrame([row for cell in rows[name] for row in cell], columns=schema.names)
            for name, schema in SCHEMAS.items()
        }


EXPERIMENT = ModelRun()


def _output(question: Question, part: str, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Survey the output, or say why that cannot be done: heads can be surveyed all the same."""
    try:
        return survey_output(question, part, seed)
    except BadInput as error:
        return {"refusals": [{"reason": str(error)}] if part == output_parts()[0] else []}


def survey_of(folder: RunFolder) -> Survey:
    """Read the survey that a finished run left."""
    record = folder.record()
    try:
        question = Question.from_config(record["config"])
    except BadInput as error:
        raise BadInput(
            f"{folder.path} was made by attnlimit {record.get('version')}: {error}; "
            "run `attnlimit measure` again."
        ) from None
    return Survey(question, {name: folder.table(name, schema) for name, schema in SCHEMAS.items()})
