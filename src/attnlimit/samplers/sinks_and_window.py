"""What does a query keep that looks both ways? The first tokens, and those around itself."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler, places


@dataclass(frozen=True)
class SinksAndWindow(Sampler):
    """The first `sinks` tokens and, of the others, the `width` around the query.

    The counterpart of `SinksAndRecent` for models whose queries see both ways. Sinks do not count
    for the window, so that every query keeps `sinks + width` tokens.
    """

    sinks: int = 4
    width: int = 64

    draws = "nothing"

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.width, "width", smallest=0)
        if self.sinks + self.width == 0:
            raise BadInput("SinksAndWindow keeps nothing; give sinks or width above 0.")

    @property
    def name(self) -> str:
        return f"{self.sinks} sinks + window {self.width}"

    def sized(self, n: int) -> SinksAndWindow:
        sinks = min(self.sinks, checks.count(n, "n", smallest=1))
        return SinksAndWindow(sinks, n - sinks)

    def looked(self, key: int, number: float) -> float:
        return 0.0

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        last = max(self.sinks, scores.shape[-1] - self.width)
        start = (queries - self.width // 2).clamp(self.sinks, last)[:, None]
        place = places(scores)
        kept = (place < self.sinks) | ((place >= start) & (place < start + self.width))
        return kept.expand(scores.shape)
