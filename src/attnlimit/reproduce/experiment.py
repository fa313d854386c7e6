"""What is an experiment? Work cut into shards, whose rows combine into curves and a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from attnlimit.report.spec import FigureSpec
from attnlimit.runs.experiment import Config, Shard, halve_draws, whole

__all__ = ["Config", "Experiment", "Shard", "halve_draws"]


def no_remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """Return the remarks of an experiment that has none."""
    return []


@dataclass(frozen=True)
class Experiment:
    """One table and figure, as functions of a JSON-able configuration.

    Attributes
    ----------
    name, title : str
        What the user types, and one line for `--list`.
    config : callable
        `config(paper)` is the full configuration, `"seed"` included; `paper` asks for the
        paper's sizes instead of about two minutes on two cores.
    shards : callable
        `shards(config)` cuts the work into JSON-able dictionaries of a few seconds to a minute
        each. A shard may carry `"stream"`: shards of one stream get the same seed, which is how
        temperatures share their random numbers; without it the shard's index is its stream.
    compute : callable
        `compute(shard, seed)` returns the shard's rows and depends on nothing else.
    combine : callable
        `combine(config, rows)` turns the rows of all shards, in the order of the shards with
        their index in the column `shard`, into the rows of `curves.parquet`.
    figure, table : callable
        `figure(config, curves)` describes the picture, `table(config, curves)` what is printed.
    remarks : callable
        Sentences printed under the table.
    split : callable, optional
        `split(shard)` cuts a shard that found too little memory into smaller ones whose rows, one
        after the other, are its own; an empty list where it cannot be cut. See `halve_draws`.
    schemas : mapping, optional
        Types of the tables that `combine` returns, for an experiment that leaves several.
    module : str
        Where `EXPERIMENT` can be imported from, for experiments that are not in the registry.
    """

    name: str
    title: str
    config: Callable[[bool], Config]
    shards: Callable[[Config], Iterable[Shard]]
    compute: Callable[[Shard, np.random.SeedSequence], pd.DataFrame]
    combine: Callable[[Config, pd.DataFrame], pd.DataFrame | Mapping[str, pd.DataFrame]]
    figure: Callable[[Config, pd.DataFrame], FigureSpec]
    table: Callable[[Config, pd.DataFrame], pd.DataFrame]
    remarks: Callable[[Config, pd.DataFrame], list[str]] = no_remarks
    split: Callable[[Shard], list[Shard]] = whole
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    module: str = ""

    @property
    def path(self) -> str:
        """Where workers find it."""
        return f"{self.module}:EXPERIMENT"
