"""Which rows of a table belong together?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pandas.api.types import is_scalar


def groups(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield (value, rows) for one column or (values, rows) for several, in their first order."""
    by = list(columns) if len(columns) > 1 else columns[0]
    yield from frame.groupby(by, sort=False)


def where(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows whose columns have these values."""
    for column, value in values.items():
        wanted = value if is_scalar(value) else pd.Series([value] * len(frame), frame.index)
        frame = frame[frame[column] == wanted]
    return frame
