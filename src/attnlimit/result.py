"""How does a result show itself? As a headline with a table below, the same everywhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

MOST_ROWS = 40


class Result(ABC):
    """Something computed that prints as its headline and its table."""

    digits: ClassVar[int] = 5  # that are printed

    @abstractmethod
    def headline(self) -> str:
        """What the table is about, and what none of its rows says."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The table."""

    def __str__(self) -> str:
        shown = self.to_frame().to_string(
            index=False, float_format=lambda v: f"{v:.{self.digits}g}", max_rows=MOST_ROWS
        )
        return f"{self.headline()}\n{shown}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.headline())}</p>{self.to_frame().to_html(max_rows=MOST_ROWS)}"


def table(**columns: ArrayLike) -> pd.DataFrame:
    """One row for each entry of columns that are broadcast against each other."""
    whole = np.broadcast_arrays(*columns.values())
    return pd.DataFrame({name: part.ravel() for name, part in zip(columns, whole, strict=True)})
