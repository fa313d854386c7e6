"""What may a prediction of a model's output miss, and how sure are a few runs of what they show?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.models.output.target import third_order
from attnlimit.reproduce.compare import OWN, shared_scatter


def foretold(
    rows: pd.DataFrame,
    limit: float,
    draws: int,
    *,
    stderr: str = "measured_stderr",
    by: float | Array = 1.0,
) -> pd.DataFrame:
    """Return rows with both errors of what was predicted and measured, to be compared.

    A prediction's own has what second order leaves out, `by` times that of `third_order`; that of
    a measurement is mixed with what all rows that were predicted show together.
    """
    both = rows["predicted"].notna() & rows["measured"].notna()
    missed = by * third_order(rows["predicted"], limit)
    own = np.hypot(rows["predicted_stderr"].fillna(0.0), missed)
    spread = shared_scatter(rows.loc[both, "measured"], rows.loc[both, stderr], draws)
    return rows.assign(**{OWN: own, "stderr": spread.reindex(rows.index).fillna(rows[stderr])})
