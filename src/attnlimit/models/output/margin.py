"""What must a plan keep back for the next text? A factor, by how much texts differ."""

from __future__ import annotations

import numpy as np

from attnlimit.checks import Array

TEXT_SPREAD = 0.25
"""Standard deviation of the logarithm of the error between texts, before any is seen."""
PRIOR_TEXTS = 3
NINE_OF_TEN = 1.2816


def next_factor(values: Array) -> float:
    """Factor over the mean that nine of ten next texts stay below, if logarithms are normal."""
    seen = len(values)
    spread = np.log(np.maximum(values, 1e-300)).var(ddof=1) if seen > 1 else 0.0
    variance = ((seen - 1) * spread + PRIOR_TEXTS * TEXT_SPREAD**2) / (seen - 1 + PRIOR_TEXTS)
    return float(np.exp(NINE_OF_TEN * np.sqrt(variance * (1 + 1 / seen))))


def held_below(values: Array, margin: float | None) -> float:
    """What is held below the target."""
    if margin is not None:
        return float(values.mean() * margin)
    return float(values.mean() * (next_factor(values) if len(values) > 1 else 1.0))
