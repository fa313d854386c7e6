"""Bags drawn from real instances, a few of which are the signal: data for trying the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array, count, probability
from attnlimit.errors import BadInput
from attnlimit.sparse.bags.bags import Bags


@dataclass(frozen=True, eq=False)
class Pool:
    """Instances (m, dim) to draw from: those of the signal, and all others."""

    hits: Array
    others: Array


@dataclass(frozen=True, eq=False)
class BagSource:
    """Draw bags of `length` instances; positive ones hold `signals` of the signal.

    Training bags are drawn, with replacement, from one pool of instances, and test bags from
    others, named after what they hold that training never saw.
    """

    train: Pool
    tests: Mapping[str, Pool]
    length: int = 10
    signals: int = 1
    prior: float = 0.5

    def __post_init__(self) -> None:
        count(self.length, "length")
        if count(self.signals, "signals") > self.length:
            raise BadInput(f"signals is {self.signals}, but a bag holds only {self.length}.")
        probability(self.prior, "prior")

    def draw(self, n: int, rng: np.random.Generator) -> Bags:
        """Draw `n` labelled bags to train on."""
        return self._draw(self.train, n, rng)

    def draw_apart(self, most: int, rng: np.random.Generator) -> Bags:
        """Draw bags from all instances, none of them in two bags: as many as there are, at most.

        Half of the bags are positive.
        """
        pools = (self.train, *self.tests.values())
        hits, others = (
            rng.permutation(np.unique(np.concatenate(rows), axis=0))
            for rows in ([pool.hits for pool in pools], [pool.others for pool in pools])
        )
        each = 2 * self.length - self.signals
        pairs = min(most // 2, len(hits) // self.signals, len(others) // each)
        bags = []
        for number in range(pairs):
            mine = others[number * each : (number + 1) * each]
            signal = hits[number * self.signals : (number + 1) * self.signals]
            bags += [np.concatenate([signal, mine[self.length :]]), mine[: self.length]]
        return Bags(tuple(bags), np.tile([1, -1], pairs))

    def draw_tests(self, n: int, rng: np.random.Generator) -> dict[str, Bags]:
        """Draw `n` labelled bags from each pool that is kept for testing."""
        return {name: self._draw(pool, n, rng) for name, pool in self.tests.items()}

    def _draw(self, pool: Pool, n: int, rng: np.random.Generator) -> Bags:
        bags, labels = [], np.where(rng.random(n) < self.prior, 1, -1)
        labels[:2] = 1, -1
        for label in labels:
            bag = pool.others[rng.integers(len(pool.others), size=self.length)].copy()
            if label > 0:
                bag[: self.signals] = pool.hits[rng.integers(len(pool.hits), size=self.signals)]
            bags.append(bag)
        return Bags(tuple(bags), labels.astype(np.int64))
