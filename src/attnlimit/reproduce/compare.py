"""How far are measurements from predictions? In standard errors, said the same way by all."""

from __future__ import annotations

import numpy as np
import pandas as pd

COMPARED = ("predicted", "measured", "stderr")
"""The columns of rows that compare."""


def with_z(frame: pd.DataFrame) -> pd.DataFrame:
    """Add z, by how many standard errors the prediction is above the measurement."""
    gap = frame["predicted"] - frame["measured"]
    return frame.assign(z=gap / frame["stderr"].where(frame["stderr"] > 0))


def agreement(frame: pd.DataFrame, what: str = "") -> str:
    """Say how far predictions are from measurements, over all rows that have both."""
    said = f"{what}: " if what else ""
    z = with_z(frame)["z"].dropna()
    if z.empty:
        return f"{said}no measurement has both a prediction and a standard error."
    both = frame.loc[z.index]
    gap = (both["predicted"] / both["measured"].where(both["measured"] != 0) - 1).abs()
    return (
        f"{said}predicted against measured at {len(z)} points: root mean square difference "
        f"{np.sqrt((z**2).mean()):.2f} standard errors, largest {z.abs().max():.1f}, "
        f"{int((z.abs() > 3).sum())} beyond 3; median distance {gap.median():.1%}, "
        f"largest {gap.max():.1%}."
    )
