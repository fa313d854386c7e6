"""What does a shard cost that has nothing to do? An experiment for the suite `scale`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec
from attnlimit.reproduce.experiment import Config, Experiment, Shard


def _config(paper: bool) -> Config:
    return {"seed": 0, "shards": 100_000 if paper else 10_000}


def _shards(config: Config) -> Iterator[Shard]:
    return ({"number": number} for number in range(config["shards"]))


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    return pd.DataFrame({"number": [shard["number"]]})


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"shards": [len(rows)]})


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    return curves


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    return FigureSpec("Empty shards", (), 1, "")


EXPERIMENT = Experiment(
    "empty",
    "Shards with nothing to do",
    _config,
    _shards,
    _compute,
    _combine,
    _figure,
    _table,
    module="benchmarks.empty_shards",
)
