"""What do n instances of a bag give, drawn? The referee of the laws."""

from __future__ import annotations

import numpy as np
import torch

from attnlimit.checks import Array
from attnlimit.samplers import Sampler
from attnlimit.sparse.instances.predicted import PLACE
from attnlimit.sparse.instances.seen import SeenBag

BLOCK = 1 << 22


def measure_bag(
    sampler: Sampler, bag: SeenBag, draws: int, generator: torch.Generator
) -> dict[str, Array]:
    """Quantities of one bag in each of `draws` draws, by name."""
    parts = []
    block = max(1, BLOCK // (len(bag.scores) + bag.features.shape[1]))
    for start in range(0, draws, block):
        parts.append(_drawn(sampler, bag, min(block, draws - start), generator))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _drawn(
    sampler: Sampler, bag: SeenBag, draws: int, generator: torch.Generator
) -> dict[str, Array]:
    scores = torch.from_numpy(bag.scores)[None].expand(draws, 1, -1)
    added = sampler.draw(scores, PLACE, generator)[:, 0]
    p = torch.softmax(scores[:, 0] + added, -1).numpy()
    whole = torch.softmax(scores[0, 0], -1).numpy()
    read = (added > -torch.inf).numpy()
    found = {
        "read": read.sum(axis=1).astype(float),
        "feature error": (((p - whole) @ bag.features) ** 2).sum(axis=1) / bag.scale,
    }
    if bag.log_odds is not None and bag.whole is not None:
        odds = p @ bag.log_odds
        found["log-odds error"] = (odds - bag.whole) ** 2
        found["decision changed"] = ((odds >= 0) != (bag.whole >= 0)).astype(float)
    if bag.signal is not None:
        found["signal drawn"] = read[:, bag.signal].any(axis=1).astype(float)
    return found
