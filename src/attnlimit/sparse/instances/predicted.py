"""What do n instances of a bag give, by exact laws: feature, decision, and is the signal there?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln

from attnlimit.checks import Array
from attnlimit.samplers import Sampler
from attnlimit.sparse.instances.decision import decision_changes
from attnlimit.sparse.instances.seen import SeenBag
from attnlimit.theory.law.sampler import sampler_law

PLACE = torch.zeros(1, dtype=torch.long)
"""A bag's query has no place among the instances."""


def predict_bag(sampler: Sampler, bag: SeenBag) -> dict[str, float]:
    """Quantities of one bag, by name; those that are not defined are left out."""
    scores = torch.from_numpy(bag.scores)[None]
    law = sampler_law(sampler, scores, bag.features, PLACE)
    found = {"read": float(law.kept[0]), "feature error": float(law.mse[0]) / bag.scale}
    if bag.log_odds is not None and bag.whole is not None:
        own = sampler_law(sampler, scores, bag.log_odds[:, None], PLACE)
        found["log-odds error"] = float(own.mse[0])
        found["decision changed"] = decision_changes(sampler, bag.scores, bag.log_odds, bag.whole)
    if bag.signal is not None:
        found["signal drawn"] = signal_drawn(sampler, bag.scores, bag.signal)
    return found


def instances_read(sampler: Sampler, seen: Sequence[SeenBag]) -> float:
    """Different instances of a bag that are drawn or kept, on average over draws and bags."""
    scores = [torch.from_numpy(bag.scores)[None] for bag in seen]
    laws = [sampler_law(sampler, one, torch.zeros(one.shape[1], 1), PLACE) for one in scores]
    return float(np.mean([float(law.kept[0]) for law in laws]))


def signal_drawn(sampler: Sampler, scores: Array, signal: NDArray[np.bool_]) -> float:
    """Chance that at least one of the instances marked in `signal` is drawn or kept."""
    total, hits = len(signal), int(signal.sum())
    if sampler.draws == "with replacement":
        return -float(np.expm1(sampler.size * np.log1p(-hits / total))) if hits < total else 1.0  # type: ignore[attr-defined]
    if sampler.draws == "without replacement":
        size = min(int(sampler.size), total)  # type: ignore[attr-defined]
        if size + hits > total:
            return 1.0
        ways = gammaln(total - hits + 1) - gammaln(total - hits - size + 1)
        return 1 - float(np.exp(ways + gammaln(total - size + 1) - gammaln(total + 1)))
    keep = sampler.keep(torch.from_numpy(scores)[None], PLACE)[0].double().numpy()
    return 1 - float(np.prod(1 - keep[signal]))
