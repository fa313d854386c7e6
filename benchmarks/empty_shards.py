"""What does a shard cost that has nothing to do? Work for the suite `scale`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from attnlimit.runs.experiment import Config, Shard, whole


@dataclass(frozen=True)
class EmptyShards:
    """As many shards as the configuration says, each with one row."""

    name: str = "empty"
    path: str = "benchmarks.empty_shards:EXPERIMENT"
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)

    def shards(self, config: Config) -> Iterator[Shard]:
        """Number the shards."""
        return ({"number": number} for number in range(config["shards"]))

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Return the number."""
        return pd.DataFrame(shard, index=[0])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Count the shards."""
        return pd.DataFrame({"shards": [len(rows)]})

    def split(self, shard: Shard) -> list[Shard]:
        """Nothing to cut."""
        return whole(shard)


EXPERIMENT = EmptyShards()
