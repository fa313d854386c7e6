"""Panels whose y axis is a list of names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import Series
from attnlimit.reproduce.compare import comparable, is_beyond


def rungs(
    rows: pd.DataFrame, order: list[str], by: str, label: str | None, group: Any
) -> list[Series]:
    """Rows as a list from below: measurements as points, predictions as lines across."""
    place = rows[by].map(order.index).to_numpy(float)
    high = (place[:, None] + np.array([-0.36, 0.36, np.nan])).ravel()
    predicted = np.repeat(rows["predicted"].to_numpy(float), 3)
    line = Series(predicted, high, "line", None, group)
    return [line, across(rows.assign(place=place), label, group)]


def across(rows: pd.DataFrame, label: str | None, group: Any, x: str = "measured") -> Series:
    """Measurements along x, at the rows' `place` in a list, with error bars and rings."""
    shown = rows[rows[x].notna()]
    bars = shown.get("stderr" if x == "measured" and "stderr" in shown else f"{x}_stderr")
    far = comparable(shown) if x == "measured" else None
    rings = None if far is None else is_beyond(far).reindex(shown.index, fill_value=False).tolist()
    return Series(shown[x], shown["place"], "points", label, group, beyond=rings, x_error=bars)
