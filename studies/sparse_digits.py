"""The planner on real data: bags of handwritten digits, predicted and then trained."""

from __future__ import annotations

from attnlimit.reproduce.experiment import Config, Shard
from bag_sources import BagSource, digit_bags
from planned_bags import PlannedBags


class Digits(PlannedBags):
    """Bags of scikit-learn's digits, one digit being the signal."""

    name = "sparse-digits"
    title = "Sparse tokens on real data: bags of handwritten digits, planned and then trained"
    signal = "digit"
    heading = "Bags of ten handwritten digits, one of them the signal"

    def config(self, paper: bool) -> Config:
        return {
            "digits": [0, 6, 9],
            "length": 10,
            "signals": 1,
            "pilot": 400,
            "budgets": [50, 100, 200, 400, 800, 1600],
            "replicates": 20 if paper else 6,
            "test_bags": 4000,
        }

    def source(self, shard: Shard) -> BagSource:
        """Bags of a shard's digit."""
        return digit_bags(shard["digit"], shard["length"], shard["signals"])


EXPERIMENT = Digits()
