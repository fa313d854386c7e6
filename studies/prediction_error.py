"""Errors of predicted and measured outputs of a model, from few runs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.reproduce.compare import OWN, shared_scatter


def predicted_with_error(
    rows: pd.DataFrame, draws: int, *, stderr: str = "measured_stderr"
) -> pd.DataFrame:
    """Return rows with both errors of what was predicted and measured, to be compared.

    A prediction's own is that of its probes and what second order leaves out, in the column
    `numerical_error`; that of a measurement is mixed with what all rows that were predicted show
    together.
    """
    both = rows["predicted"].notna() & rows["measured"].notna()
    own = np.hypot(rows["predicted_stderr"].fillna(0.0), rows["numerical_error"])
    spread = shared_scatter(rows.loc[both, "measured"], rows.loc[both, stderr], draws)
    return rows.assign(**{OWN: own, "stderr": spread.reindex(rows.index).fillna(rows[stderr])})
