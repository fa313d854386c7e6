"""The first keys and the last ones, as StreamingLLM keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler, places


@dataclass(frozen=True)
class SinksAndRecent(Sampler):
    """The first `sinks` tokens and the last `recent` ones up to the query."""

    sinks: int = 4
    recent: int = 64

    draws = "nothing"

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.recent, "recent", smallest=0)
        if self.sinks + self.recent == 0:
            raise BadInput("SinksAndRecent keeps nothing; give sinks or recent above 0.")

    @property
    def name(self) -> str:
        return f"{self.sinks} sinks + {self.recent} recent"

    @property
    def forgets(self) -> bool:
        return True

    def sized(self, n: int) -> SinksAndRecent:
        sinks = min(self.sinks, checks.count(n, "n", smallest=1))
        return SinksAndRecent(sinks, n - sinks)

    def looked(self, key: int, number: float) -> float:
        return 0.0

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        place = places(scores)
        distance = queries[:, None] - place
        kept = (place < self.sinks) | ((distance >= 0) & (distance < self.recent))
        return kept.expand(scores.shape)
