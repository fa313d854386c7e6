"""A given number of keys, all alike: what drawing with and without replacement share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler


@dataclass(frozen=True)
class Drawn(Sampler):
    """`n` of the visible keys; without n it is a way to draw that still needs a size."""

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None:
            checks.count(self.n, "n", smallest=1)

    def sized(self, n: int) -> Drawn:
        return replace(self, n=n)

    @property
    def size(self) -> int:
        """How many keys are drawn."""
        if self.n is None:
            name = type(self).__name__
            raise BadInput(f"{name} needs n, how many keys each query draws: al.{name}(n).")
        return self.n

    def looked(self, key: int, number: float) -> float:
        return 0.0

    def keep(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chances as they are: something is always drawn."""
        return self.probabilities(scores, queries)
