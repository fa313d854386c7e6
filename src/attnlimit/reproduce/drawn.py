"""How is a measurement cut into shards? Blocks of independent draws, each from its own seed."""

from __future__ import annotations

import numpy as np

from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.runs.experiment import halve_draws


def grid(low: int, high: int, count: int) -> list[int]:
    """Whole numbers from `low` to `high`, evenly spaced in their logarithm."""
    return [int(value) for value in np.unique(np.round(np.geomspace(low, high, count)))]


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

    def split(self, shard: Shard) -> list[Shard]:
        """Cut the draws in two; the second half begins at draw `first` of the same seed."""
        return halve_draws(shard)
