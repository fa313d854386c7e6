"""Samplers by position: the first tokens, the last ones, and windows around the query."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.samplers.base import Draws, Sampler, positions
from attnlimit.samplers.uniform import sampled_rest


@dataclass(frozen=True)
class SinksAndRecent(Sampler):
    """The first `sinks` tokens and the last `recent` ones up to the query.

    StreamingLLM (Xiao et al., arXiv:2309.17453).

    Examples
    --------
    >>> import torch, attnlimit as al
    >>> al.SinksAndRecent(1, 2).probabilities(torch.zeros(1, 5), torch.tensor([4]))
    tensor([[ True, False, False,  True,  True]])
    """

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

    def with_size(self, n: float) -> SinksAndRecent:
        count = checks.count(n, "n", smallest=1)
        sinks = min(self.sinks, count)
        return SinksAndRecent(sinks, count - sinks)

    def selection_bytes(self, key: int, number: float) -> float:
        return 0.0

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        position = positions(scores)
        distance = queries[:, None] - position
        kept = (position < self.sinks) | ((distance >= 0) & (distance < self.recent))
        return kept.expand(scores.shape)


@dataclass(frozen=True)
class SinksAndWindow(Sampler):
    """The first `sinks` tokens and, of the others, the `width` around the query.

    The counterpart of `SinksAndRecent` for encoders, whose queries see both ways. Sinks do not
    count for the window, so that every query keeps `sinks + width` tokens.
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

    def with_size(self, n: float) -> SinksAndWindow:
        count = checks.count(n, "n", smallest=1)
        sinks = min(self.sinks, count)
        return SinksAndWindow(sinks, count - sinks)

    def selection_bytes(self, key: int, number: float) -> float:
        return 0.0

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        last = max(self.sinks, scores.shape[-1] - self.width)
        start = (queries - self.width // 2).clamp(self.sinks, last)[:, None]
        position = positions(scores)
        kept = (position < self.sinks) | ((position >= start) & (position < start + self.width))
        return kept.expand(scores.shape)


@dataclass(frozen=True)
class Window(Sampler):
    """The `width` keys around the query, and each other key with an equal probability.

    `random` of the others are kept on average, independently, so that the law is exact. BigBird
    (Zaheer et al., arXiv:2007.14062) draws a fixed number of blocks instead.
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

    def with_size(self, n: float) -> Window:
        count = checks.count(n, "n", smallest=1)
        width = max(1, round(count * self.width / (self.width + self.random)))
        return Window(width, count - width)

    def selection_bytes(self, key: int, number: float) -> float:
        return 0.0

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        size = scores.shape[-1]
        start = (queries - self.width // 2).clamp(0, max(0, size - self.width))[:, None]
        position = positions(scores)
        near = (position >= start) & (position < start + self.width)
        return sampled_rest(scores, near.expand(scores.shape), self.random)
