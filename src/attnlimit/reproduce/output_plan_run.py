"""How is a plan for the output made by several workers? A layer each, read from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from attnlimit.checks import Array
from attnlimit.models import OutputPlan
from attnlimit.models.output.family import family_of
from attnlimit.models.output.ground import CapturesAlone
from attnlimit.models.output.heads import HeadErrors
from attnlimit.models.output.plan import size_tables
from attnlimit.models.output.probes import Probed
from attnlimit.models.output.yardstick import Yardstick
from attnlimit.models.spend.assign import Table
from attnlimit.runs import Executor, execute
from attnlimit.runs.driver import Progress
from attnlimit.runs.experiment import Config, Shard, whole
from attnlimit.survey import Question, plans_for

BY_PROBE, BY_HEAD = ("variance", "bias", "rough"), ("keys", "moved")


class OutputPlanRun:
    """The run behind `plan --kl --capture`; its configuration is `Question.to_config()`."""

    name = "output-plan"
    path = "attnlimit.reproduce.output_plan_run:EXPERIMENT"
    schemas: Mapping[str, pa.Schema] = MappingProxyType({})
    split = staticmethod(whole)

    def shards(self, config: Config) -> Iterator[Shard]:
        """Cut the work into the layers of each passage."""
        for passage, capture in enumerate(Question.from_config(config).captures()):
            for layer in sorted(capture.layers):
                yield {**config, "passage": passage, "layer": layer}

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Tabulate a layer's heads over sizes: one row, whose cells are arrays."""
        question, layer = Question.from_config(shard), shard["layer"]
        goal = question.goal
        ground = CapturesAlone(question.captures(), goal.output)
        tables, bytes_too = size_tables(ground, family_of(goal.scheme)), goal.cost == "bytes"
        found = ground.layer_errors(shard["passage"], [layer], tables, bytes_too=bytes_too)
        row = {name: getattr(found, name) for name in ("visible", "dense_bytes")}
        row |= {name: getattr(found.probed, name) for name in ("scale", "limit")}
        for name in BY_PROBE + BY_HEAD[: 1 + bytes_too]:
            row[name] = getattr(found, name)[:, layer].ravel()
        row["yardstick"] = found.yardstick.sums.ravel()
        return pd.DataFrame([{"passage": shard["passage"], **row}])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the layers in their order."""
        return rows.drop(columns="shard")


EXPERIMENT = OutputPlanRun()


class LayersApart(CapturesAlone):
    """Captures whose layers are read by workers, all of them when the first is asked about."""

    def __init__(
        self, question: Question, executor: Executor, progress: Progress | None = None
    ) -> None:
        super().__init__(question.captures(), question.goal.output)
        self.question, self.executor, self.progress = question, executor, progress

    @cached_property
    def rows(self) -> pd.DataFrame:
        """What the workers found."""
        with TemporaryDirectory() as place:
            folder = execute(
                EXPERIMENT,
                self.question.to_config(),
                Path(place),
                executor=self.executor,
                progress=self.progress,
            )
            return folder.table()

    def errors(self, text: int, tables: Sequence[Table], *, bytes_too: bool) -> HeadErrors:
        """Put the layers of a text together."""
        rows = self.rows[self.rows["passage"] == text]

        def joined(name: str, *more: int) -> Array:
            shape = (len(tables), self.shape[1], *more)
            return np.stack([np.reshape(cell, shape) for cell in rows[name]], axis=1)

        scale, limit = rows[["scale", "limit"]].iloc[0].tolist()
        best = Yardstick()
        best.sums += np.reshape(np.sum(rows["yardstick"].to_list(), axis=0), best.sums.shape)
        variance, bias, rough = (joined(name, self.probes) for name in BY_PROBE)
        return HeadErrors(
            variance=variance,
            bias=bias,
            keys=joined("keys"),
            rough=rough,
            moved=joined("moved") if bytes_too else None,
            visible=float(rows["visible"].sum()),
            dense_bytes=float(rows["dense_bytes"].sum()),
            probed=Probed(scale, limit, self.tokens[text], torch.empty(0)),
            yardstick=best,
        )


def output_plan_by_workers(
    question: Question, executor: Executor, progress: Progress | None = None
) -> OutputPlan:
    """Plan for the goal of a question about captures by several workers, bit for bit as one would.

    Layers are read where the workers are, and nobody has the model.
    """
    ground = LayersApart(question, executor, progress)
    return plans_for(question, question.seed, [question.goal.allowed], ground=ground)[0]
