"""What is an experiment? Work cut into shards, whose rows combine into curves and a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec

Config = dict[str, Any]
Shard = dict[str, Any]


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
    """

    name: str
    title: str
    config: Callable[[bool], Config]
    shards: Callable[[Config], list[Shard]]
    compute: Callable[[Shard, np.random.SeedSequence], pd.DataFrame]
    combine: Callable[[Config, pd.DataFrame], pd.DataFrame]
    figure: Callable[[Config, pd.DataFrame], FigureSpec]
    table: Callable[[Config, pd.DataFrame], pd.DataFrame]
    remarks: Callable[[Config, pd.DataFrame], list[str]] = no_remarks
