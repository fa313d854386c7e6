"""Rows that belong together, in the order in which they first come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd


def groups(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield (value, rows) for one column, or (values, rows) for several."""
    by = list(columns) if len(columns) > 1 else columns[0]
    yield from frame.groupby(by, sort=False)
