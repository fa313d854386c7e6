"""What must be known of an attention pooling? Scores and features of instances, and a readout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from attnlimit.checks import Array, real_array, real_number
from attnlimit.errors import BadInput


@dataclass(frozen=True, eq=False)
class ScoredBags:
    """Bags as an attention pooling sees them.

    Parameters
    ----------
    scores : sequence of (instances,) arrays
        Before the softmax, one array for each bag.
    features : sequence of (instances, dim) arrays
        What is averaged with the softmax of the scores.
    weights : (dim,) array, optional
        Readout: the bag is positive where <weights, pooled feature> + bias > 0. Without it only
        the error of the feature is known.
    bias : float
    """

    scores: Sequence[Array]
    features: Sequence[Array]
    weights: Array | None = None
    bias: float = 0.0

    def __post_init__(self) -> None:
        scores = tuple(real_array(one, "scores of a bag", ndim=1) for one in self.scores)
        features = tuple(real_array(one, "features of a bag", ndim=2) for one in self.features)
        if not scores or [len(one) for one in scores] != [len(one) for one in features]:
            raise BadInput(
                "scores and features must have one array for each bag, with one score for each "
                f"instance; got {len(scores)} and {len(features)} arrays of "
                f"{_lengths(scores)} and {_lengths(features)} instances."
            )
        if not all(map(len, scores)):
            raise BadInput("a bag is empty; remove it or give it at least one instance.")
        dims = {one.shape[1] for one in features}
        weights = None if self.weights is None else real_array(self.weights, "weights", ndim=1)
        if len(dims) > 1 or (weights is not None and {len(weights)} != dims):
            given = "" if weights is None else f" and {len(weights)} weights"
            raise BadInput(f"features must all have one dimension, got {sorted(dims)}{given}.")
        for name, value in (("scores", scores), ("features", features), ("weights", weights)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "bias", real_number(self.bias, "bias"))

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def pooled(self) -> Array:
        """Pooled feature of each bag, (bags, dim)."""
        pairs = zip(self.scores, self.features, strict=True)
        return np.stack([softmax(scores) @ features for scores, features in pairs])


@runtime_checkable
class Scores(Protocol):
    """Anything that can say how it sees bags."""

    def scored(self, X: Any) -> ScoredBags:
        """Scores and features of the instances of bags."""


def _lengths(arrays: Sequence[ArrayLike]) -> str:
    some = [len(np.atleast_1d(one)) for one in arrays[:3]]
    return ", ".join(map(str, some)) + (", ..." if len(arrays) > 3 else "")
