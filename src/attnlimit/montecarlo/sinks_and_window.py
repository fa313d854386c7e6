"""What does a query keep that looks both ways? The first tokens, and those around itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.montecarlo.samplers import Picks


@dataclass(frozen=True)
class SinksAndWindow:
    """The first `sinks` tokens and, of the others, the `width` around the query.

    The counterpart of `SinksAndRecent` for models whose queries see both ways. Sinks do not count
    for the window, so that every query keeps `sinks + width` tokens.
    """

    sinks: int = 4
    width: int = 64

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.width, "width", smallest=0)
        if self.sinks + self.width == 0:
            raise BadInput("SinksAndWindow keeps nothing; give sinks or width above 0.")

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose them; the sampler's own sizes rule, not n."""
        size = len(scores)
        last = max(self.sinks, size - self.width)
        start = int(np.clip(place - self.width // 2, self.sinks, last))
        near = np.arange(start, min(size, start + self.width))
        keys = np.concatenate([np.arange(min(self.sinks, size)), near])
        return keys, np.zeros(len(keys))
