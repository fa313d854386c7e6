"""Shards without work, for the suite `scale`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce import Config, Experiment, Shard


class EmptyShards(Experiment):
    """As many shards as the configuration says, each with one row."""

    name = "empty"
    title = "Empty shards"

    def config(self, paper: bool) -> Config:
        """Return the number of shards."""
        return {"shards": 10_000}

    def shards(self, config: Config) -> Iterator[Shard]:
        """Number the shards."""
        return ({"number": number} for number in range(config["shards"]))

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Return the number."""
        return pd.DataFrame(shard, index=[0])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Count the shards."""
        return pd.DataFrame({"shards": [len(rows)]})

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        """Return an empty figure."""
        return FigureSpec(self.title, ())


EXPERIMENT = EmptyShards()
