"""What is an experiment? Work cut into shards, whose rows become curves, a table and a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import COMPARED, agreement, comparable, with_z
from attnlimit.runs.experiment import Config, Shard, halve_draws

SMALLEST = {"n": 1, "replicates": 2, "block": 1}
"""What a setting whose name ends so must be at least."""


class Experiment(ABC):
    """One table and figure of a JSON-able configuration, in a file of its own.

    A file has one subclass and ends with ``EXPERIMENT = ItsClass()``. It must give `name` (what the
    user types), `title` (one line), `config`, `shards`, `compute` and `figure`; the rest has
    defaults. Rows that have the columns `predicted`, `measured` and `stderr` are compared by them,
    and by `prediction_error` and `skewness` where they state those (`reproduce/compare.py`).
    """

    name: str
    title: str
    takes_capture = False
    """Whether a capture's folder can stand for its model and text."""
    schemas: Mapping[str, pa.Schema] = MappingProxyType({})

    @abstractmethod
    def config(self, paper: bool) -> Config:
        """Return every setting but the seed; `paper` asks for the paper's sizes.

        Otherwise for about two minutes on two cores.
        """

    @abstractmethod
    def shards(self, config: Config) -> Iterable[Shard]:
        """Cut the work into JSON-able dictionaries of a few seconds to a minute each.

        A shard may carry `"stream"`: shards of one stream get the same seed, which is how
        temperatures share their random numbers; without it the shard's index is its stream.
        """

    @abstractmethod
    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Return the shard's rows, which depend on nothing else."""

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Turn the rows of all shards, their index in the column `shard`, into `curves.parquet`."""
        return rows.drop(columns="shard")

    def weighed(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Return curves with the errors by which they are compared; by default those they have."""
        return curves

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Return what is printed; by default every row that was measured."""
        return with_z(curves.dropna(subset=["measured"]))

    @abstractmethod
    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        """Describe the picture."""

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """Sentences under the table; by default how well what was measured agrees."""
        compared = set(COMPARED) <= set(curves) and curves["measured"].notna().any()
        return [agreement(curves)] if compared else []

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """Rows whose predictions are held against measurements; by default all that have both."""
        return comparable(curves)

    def split(self, shard: Shard) -> list[Shard]:
        """Cut a shard that found too little memory; by default it cannot be cut.

        The rows of the parts, one after the other, are those of the shard.
        """
        return []

    @property
    def path(self) -> str:
        """Where workers find it: the module, or the user's own file, that has `EXPERIMENT`."""
        return f"{type(self).__module__}:EXPERIMENT"

    def configured(
        self,
        overrides: Mapping[str, Any] | None = None,
        *,
        paper: bool = False,
        seed: int = 0,
    ) -> Config:
        """Return the full configuration, with some settings replaced by others of their kind."""
        config = self.config(paper)
        for key, value in (overrides or {}).items():
            if key not in config:
                close = get_close_matches(key, config, n=1)
                there = (
                    f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(config))}."
                )
                raise BadInput(f"{self.name} has no setting {key!r}; {there}")
            if not _alike(value, config[key]):
                raise BadInput(f"{key} must be like {config[key]!r}, got {value!r}.")
        config |= dict(overrides or {})
        self.check(config)
        return config | {"seed": seed}

    def check(self, config: Config) -> None:
        """Refuse what cannot be computed before anything is; by default counts too small."""
        for key, value in config.items():
            smallest = SMALLEST.get(key.rpartition("_")[2])
            for one in value if isinstance(value, list) else [value]:
                if smallest is not None and type(one) is int:
                    checks.count(one, key, smallest=smallest)


class DrawnExperiment(Experiment):
    """An experiment whose configuration has `replicates` draws, in blocks of `block`.

    Its `compute` takes random numbers only from ``seed.spawn(shard["draws"])``, a child a draw, so
    that a shard can be cut without changing a bit.
    """

    def blocks(self, config: Config) -> list[Shard]:
        """Return the draws and the stream of every block; work of one stream shares its draws."""
        block = config["block"]
        starts = range(0, config["replicates"], block)
        return [
            {"draws": min(block, config["replicates"] - start), "stream": index}
            for index, start in enumerate(starts)
        ]

    def drawn(self, config: Config, cases: Iterable[Shard]) -> list[Shard]:
        """Return a shard for every case and block, at all n."""
        blocks = self.blocks(config)
        return [{**case, "n": config["n"], **block} for case in cases for block in blocks]

    def split(self, shard: Shard) -> list[Shard]:
        """Cut the draws in two; the second half begins at draw `first` of the same seed."""
        return halve_draws(shard)


def grid(low: int, high: int, count: int) -> list[int]:
    """Whole numbers from `low` to `high`, evenly spaced in their logarithm."""
    return [int(value) for value in np.unique(np.round(np.geomspace(low, high, count)))]


def _alike(value: Any, default: Any) -> bool:
    """Whether a value can stand where `default` does; anything may where that is nothing."""
    if isinstance(default, list) and isinstance(value, list):
        return bool(value) and all(any(_alike(one, other) for other in default) for one in value)
    return (
        default is None
        or type(value) is type(default)
        or (type(value) is int and type(default) is float)
    )
