"""How are bags of any lengths worked on at once? All their instances in one array, bag by bag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.sparse.train.descent import Blocks


@dataclass(frozen=True, eq=False)
class Stacked:
    """Instances (M, d) of all bags, those of one bag next to each other; no bag is empty."""

    instances: Array
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, bags: Sequence[Array]) -> Stacked:
        """Stack arrays (instances, d)."""
        return cls(np.concatenate(bags), np.array([len(bag) for bag in bags]))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Place of each bag's first instance."""
        return np.cumsum(self.lengths) - self.lengths

    def with_instances(self, instances: Array) -> Stacked:
        """The same bags with other features of their instances."""
        return Stacked(instances, self.lengths)

    def subset(self, index: NDArray[np.int64]) -> Stacked:
        """The bags at these places."""
        return Stacked.of(list(map(self.split().__getitem__, index)))

    def split(self, values: Array | None = None) -> list[Array]:
        """Numbers of all instances (the instances themselves by default), one array a bag."""
        return np.split(self.instances if values is None else values, self.starts[1:])

    def sums(self, values: Array) -> Array:
        """Sum over each bag of numbers (M, ...)."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=0))

    def largest(self, values: Array) -> Array:
        """Maximum over each bag of numbers (M, ...)."""
        return np.asarray(np.maximum.reduceat(values, self.starts, axis=0))

    def spread(self, values: Array) -> Array:
        """One number for each bag, given to each of its instances."""
        return np.repeat(values, self.lengths, axis=0)

    def softmax(self, scores: Array) -> Array:
        """Attention weights (M,): they sum to one in every bag."""
        raised = np.exp(scores - self.spread(self.largest(scores)))
        return np.asarray(raised / self.spread(self.sums(raised)))

    def mean(self) -> Array:
        """Mean instance of each bag."""
        return self.sums(self.instances) / self.lengths[:, None]

    def attended(self, scores: Array) -> Array:
        """Instances of each bag averaged with the softmax of their scores."""
        return self.sums(self.softmax(scores)[:, None] * self.instances)

    def blocks(self, labels: NDArray[Any]) -> Blocks:
        """Blocks of bags of one length each, as the gradient steps want them."""
        bags = self.split()
        groups = [np.flatnonzero(self.lengths == length) for length in np.unique(self.lengths)]
        stacked = [
            (np.stack([bags[i] for i in group]), labels[group].astype(float)) for group in groups
        ]
        return lambda: iter(stacked)
