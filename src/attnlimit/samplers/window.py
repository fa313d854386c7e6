"""A window around the query, and random keys beyond it (as in BigBird)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnlimit import checks
from attnlimit.samplers.base import Draws, Sampler, places
from attnlimit.samplers.keep import sampled_rest


@dataclass(frozen=True)
class Window(Sampler):
    """The `width` keys around the query, and each other key with an equal chance.

    `random` of the others are kept on average, each by itself, which makes the law exact.
    """

    width: int
    random: int = 50

    def __post_init__(self) -> None:
        checks.count(self.width, "width", smallest=1)
        checks.count(self.random, "random", smallest=0)

    @property
    def draws(self) -> Draws:
        return "independent" if self.random else "nothing"

    @property
    def name(self) -> str:
        return f"window {self.width}" + (f" + {self.random} random" if self.random else "")

    def sized(self, n: int) -> Window:
        count = checks.count(n, "n", smallest=1)
        width = max(1, round(count * self.width / (self.width + self.random)))
        return Window(width, count - width)

    def looked(self, key: int, number: float) -> float:
        return 0.0

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        size = scores.shape[-1]
        start = (queries - self.width // 2).clamp(0, max(0, size - self.width))[:, None]
        place = places(scores)
        near = (place >= start) & (place < start + self.width)
        return sampled_rest(scores, near.expand(scores.shape), self.random)
