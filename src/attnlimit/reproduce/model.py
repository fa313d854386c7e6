"""How is a survey run? As one shard for each head, combined into the survey's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.runs import RunFolder
from attnlimit.runs.experiment import Config, Shard, whole
from attnlimit.survey import SCHEMAS, Question, Survey, survey_head
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
        """Cut the survey into its heads."""
        question = Question.from_config(config)
        files = {} if self.store is None else {"stored": asdict(self.store())}
        for layer in question.layers:
            for head in range(question.heads):
                yield {**config, **files, "layer": layer, "head": head}

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Survey a head: one row, whose cells are the head's rows of each table."""
        found = survey_head(Question.from_config(shard), shard["layer"], shard["head"], seed)
        return pd.DataFrame({name: [rows] for name, rows in found.items()})

    def combine(self, config: Config, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Return the tables of the survey."""
        return {
            name: pd.DataFrame([row for cell in rows[name] for row in cell], columns=schema.names)
            for name, schema in SCHEMAS.items()
        }


EXPERIMENT = ModelRun()


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
