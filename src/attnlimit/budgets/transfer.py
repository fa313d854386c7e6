"""How much may the next text need? What the texts of a plan say about one that is not among them.

Tokens that a head needs differ from text to text. Where the error is a number and nothing is drawn,
a budget has no slack for that, so it must come from the texts: their needs k_1..k_m are taken as
draws of one log-normal law, and the budget is the one-sided prediction bound of the next draw,

    exp(mean + t_{m-1} s sqrt(1 + 1/m)),   mean and s those of log k_i,

never less than the largest k_i (docs/theory/budgets.md).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import t

from attnlimit.checks import Array

CONFIDENCE = 0.95


def next_text(needed: Array, confidence: float = CONFIDENCE) -> float:
    """Tokens that are enough for the next text, from what each of some texts needs."""
    largest = float(np.max(needed))
    count = len(needed)
    if count < 2 or not np.isfinite(largest):
        return largest
    logs = np.log(needed)
    spread = float(logs.std(ddof=1)) * float(np.sqrt(1 + 1 / count))
    bound = float(np.exp(logs.mean() + float(t.ppf(confidence, count - 1)) * spread))
    return max(largest, float(np.ceil(bound - 1e-9)))
