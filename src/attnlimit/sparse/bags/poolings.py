"""Which poolings does a plan compare? Mean, largest, and attention trained in two ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.bags.pilot import Effort, Progress, cross_validate

LAWS = {
    "mean pooling": "pooled",
    "max pooling": "pooled",
    "attention": "attention",
    "joint attention": "attention",
}
"""Every pooling, in the order of how much is trained, and the law of its learning curve."""
THEORY = ("mean pooling", "attention")
"""Those whose level the theory knows too. What is trained further overfits, by no law we have."""
SHRINKAGES = (None, 1.0)
"""Ledoit and Wolf's, or so much that features are standardised and no more."""


def poolings(shrinkage: float | None) -> dict[str, Any]:
    """Scikit-learn estimators, not fitted yet; ridge and sharpness are theirs to choose."""
    from attnlimit.sparse.pooling.attention import AttentionPooling
    from attnlimit.sparse.pooling.mean import MaxPooling, MeanPooling

    made = (
        MeanPooling((0.01, 0.1, 1.0), shrinkage=shrinkage),
        MaxPooling((0.01, 0.1, 1.0)),
        AttentionPooling("two-step", (0.01, 0.1), 2.0, shrinkage=shrinkage),
        AttentionPooling("joint", 0.05, 1.0, shrinkage=shrinkage),
    )
    return dict(zip(LAWS, made, strict=True))


def best_shrinkage(
    bags: Bags, effort: Effort, seed: np.random.SeedSequence, progress: Progress | None = None
) -> float | None:
    """Choose the coordinates in which mean pooling, the fastest to train, errs least."""
    tried = {str(value): poolings(value)["mean pooling"] for value in SHRINKAGES}
    found = cross_validate(bags, tried, effort, fractions=(1.0,), seed=seed, progress=progress)
    return SHRINKAGES[int(np.argmin(found.error[:, -1]))]
