"""What is the smallest n at which few enough decisions change? Doubled, then halved, by the law."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlimit.samplers import Sampler
from attnlimit.sparse.instances.decision import decision_changes
from attnlimit.sparse.instances.seen import SeenBag

TIMES = 64
"""How many times the longest bag may be drawn."""


def smallest_enough(sampler: Sampler, seen: Sequence[SeenBag], change: float) -> int | None:
    """Return the smallest size whose mean chance of another decision is at most `change`."""
    longest = max(len(bag.scores) for bag in seen)

    def changed(size: int) -> float:
        sized = sampler.sized(size)
        return float(
            np.mean(
                [
                    decision_changes(sized, bag.scores, bag.log_odds, bag.whole)
                    for bag in seen
                    if bag.log_odds is not None and bag.whole is not None
                ]
            )
        )

    high = 1
    while changed(high) > change:
        if high >= TIMES * longest:
            return None
        high *= 2
    low = high // 2  # not enough, or zero
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if changed(middle) <= change else (middle, high)
    return high
