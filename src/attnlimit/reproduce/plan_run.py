"""How is a plan made by several workers? A head each, read from a capture that is files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa

from attnlimit.budgets.head import HeadBudget, head_budget
from attnlimit.budgets.model import Plan, shape_of
from attnlimit.runs import Executor, execute
from attnlimit.runs.driver import Progress
from attnlimit.runs.experiment import Config, Shard, whole
from attnlimit.survey import Question, write_captures


class PlanRun:
    """The run behind `plan --workers`; its configuration is `Question.to_config()`."""

    name = "plan"
    path = "attnlimit.reproduce.plan_run:EXPERIMENT"
    schemas: Mapping[str, pa.Schema] = MappingProxyType({})
    split = staticmethod(whole)

    def shards(self, config: Config) -> Iterator[Shard]:
        """Cut the plan into its heads."""
        question = Question.from_config(config)
        for layer in question.layers:
            for head in range(question.heads):
                yield {**config, "layer": layer, "head": head}

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Budget a head: one row, with its entry in a budget file."""
        question = Question.from_config(shard)
        texts = [one[shard["layer"], shard["head"]] for one in question.captures()]
        found = head_budget(texts, question.terms, queries=question.queries)
        return pd.DataFrame({"layer": [found.layer], "budget": [json.dumps(found.to_dict())]})

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the heads in their order."""
        return rows.drop(columns="shard")


EXPERIMENT = PlanRun()


def plan_by_workers(
    question: Question, executor: Executor, progress: Progress | None = None, *, near: bool = True
) -> Plan:
    """Plan a question's heads by several workers, bit for bit as one would.

    The model runs once, here, and is written to files that workers read head by head; those of a
    machine that is not `near` see none of them and load the model themselves.
    """
    with TemporaryDirectory() as place:
        asked = question
        if question.stored is None and near:
            asked = write_captures(question, Path(place) / "captures")
        root, config = Path(place) / "runs", asked.to_config()
        folder = execute(EXPERIMENT, config, root, executor=executor, progress=progress)
        rows = folder.table()
        first = asked.captures()[0]
        shape = shape_of(first)
    context, terms = question.tokens, question.terms
    heads = tuple(
        HeadBudget.from_dict(json.loads(entry), layer, context, terms)
        for layer, entry in zip(rows["layer"].tolist(), rows["budget"].tolist(), strict=True)
    )
    return Plan(heads, terms, context, **shape, source=question.source)
