"""How is a bag seen by its pooling? Scores, features, log-odds of each instance, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.sparse.pooling.scored import ScoredBags


@dataclass(frozen=True, eq=False)
class SeenBag:
    """One bag, as the laws and the draws want it."""

    scores: Array
    features: Array
    scale: float
    """Mean squared distance of the bags' pooled features from their mean."""
    log_odds: Array | None
    """Of each instance alone; the bag's are their average."""
    whole: float | None
    """Log-odds over all instances."""
    signal: NDArray[np.bool_] | None
    """Instances that carry the signal, in a bag that has some."""


def seen_bags(
    scored: ScoredBags, signal: Sequence[NDArray[np.bool_]] | None = None
) -> list[SeenBag]:
    """Bags with the scale of their pooled features, and their signal instances.

    Unless `signal` marks them, they are the instances that would make a bag positive alone, in
    bags that are decided to be positive.
    """
    pooled = scored.pooled
    scale = float(((pooled - pooled.mean(axis=0)) ** 2).sum(axis=1).mean())
    if scale == 0:
        scale = float((pooled**2).sum(axis=1).mean()) or 1.0
    found = []
    for place, (scores, features) in enumerate(zip(scored.scores, scored.features, strict=True)):
        odds = whole = None
        marks = None if signal is None else _marks(signal[place], len(scores))
        if scored.weights is not None:
            odds = features @ scored.weights + scored.bias
            whole = float(softmax(scores) @ odds)
            if signal is None and whole > 0:
                marks = odds > 0
        marked = marks if marks is not None and marks.any() else None
        found.append(SeenBag(scores, features, scale, odds, whole, marked))
    return found


def _marks(given: NDArray[np.bool_], length: int) -> NDArray[np.bool_]:
    marks = np.asarray(given, dtype=bool)
    if marks.shape != (length,):
        raise BadInput(
            f"signal must mark each of a bag's {length} instances, got shape {marks.shape}."
        )
    return marks
