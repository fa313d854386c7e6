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
    """Return the smallest size, 2 or more, from which on decisions change at most so often.

    How often they do need not fall with the size, so doublings are looked at from the largest.
    """
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

    largest = 1 << int(np.ceil(np.log2(TIMES * longest)))
    if changed(largest) > change:
        return None
    high = largest
    while high > 2 and changed(high // 2) <= change:
        high //= 2
    low = high // 2  # not enough, or one
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if changed(middle) <= change else (middle, high)
    return high
