"""How do results become JSON or the cells of a table? As numbers that can be read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd


def plain(value: Any, digits: int | None = None) -> Any:
    """Return what JSON can hold; NaN and infinities become null, other objects their text.

    With `digits`, numbers are rounded to so many that count.
    """
    if isinstance(value, pd.DataFrame):
        value = value.to_dict(orient="records")
    if isinstance(value, dict):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray, pd.Series)):
        return [plain(item, digits) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            return None
        return float(value) if digits is None else float(f"{value:.{digits}g}")
    return value if value is None else str(value)


def cell(value: Any) -> str:
    """Return a table's entry as people read it: four digits that count, nothing for what is not."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)
