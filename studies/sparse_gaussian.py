"""The planner on its own model: Gaussian bags, predicted from a pilot and then trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.bags.data import Bags
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.sparse_rows import task_of
from attnlimit.sparse.task import SparseTask
from planned_bags import PlannedBags


@dataclass(frozen=True)
class GaussianBags:
    """Bags of a sparse task, in so many dimensions."""

    task: SparseTask
    dim: int

    def draw(self, n: int, rng: np.random.Generator) -> Bags:
        """Draw `n` labelled bags."""
        X, y = self.task.sample(n, self.dim, rng)
        return Bags(tuple(X), y.astype(np.int64))

    def draw_tests(self, n: int, rng: np.random.Generator) -> dict[str, Bags]:
        """Draw as many again."""
        return {"new bags": self.draw(n, rng)}


class Gaussian(PlannedBags):
    """Bags of the theory's own model at several strengths."""

    name = "sparse-gaussian"
    title = "Sparse tokens: Gaussian bags, planned from a pilot and then trained"
    signal = "strength"
    heading = "Gaussian bags, one signal in ten"

    def config(self, paper: bool) -> Config:
        return {
            "strengths": [5.3],
            "length": 10,
            "signals": 1,
            "prior": 0.5,
            "dim": 55,
            "pilot": 400,
            "budgets": [50, 100, 200, 400],
            "replicates": 20 if paper else 6,
            "test_bags": 8000,
        }

    def source(self, shard: Shard) -> GaussianBags:
        """Bags of a shard's strength."""
        return GaussianBags(task_of(shard), shard["dim"])


EXPERIMENT = Gaussian()
