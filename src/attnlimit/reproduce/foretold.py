"""What may a prediction of a model's output miss, and how sure are a few runs of what they show?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.models.output.target import third_order
from attnlimit.reproduce.compare import OWN

TYPICAL = 4
"""Draws that the points together count for."""


def foretold(
    rows: pd.DataFrame, limit: float, draws: int, *, stderr: str = "measured_stderr", by: float = 1
) -> pd.DataFrame:
    """Return rows with both errors of what was predicted and measured, to be compared.

    A prediction's own has what second order leaves out, `by` times that of `third_order`. That of
    a measurement from few draws may be near zero by chance: relative errors are of one order, so
    each is mixed with what all points show together.
    """
    missed = by * third_order(rows["predicted"], limit)
    own = np.hypot(rows["predicted_stderr"].fillna(0.0), missed)
    relative = (rows[stderr] / rows["measured"]) ** 2
    mixed = (TYPICAL * relative.mean() + (draws - 1) * relative) / (TYPICAL + draws - 1)
    return rows.assign(stderr=rows["measured"] * mixed**0.5, **{OWN: own})
