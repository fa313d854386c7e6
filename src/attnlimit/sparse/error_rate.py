"""ErrorRate: a probability of error that says how it was computed, and how exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from attnlimit.sparse.number import Number


@dataclass(frozen=True, eq=False)
class ErrorRate(Number):
    """An error probability with its numerical error, the method, and the rule that attains it."""

    value: float
    numerical_error: float
    method: str
    details: Mapping[str, float] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """One row: error, numerical_error, method and the details."""
        row = {"error": self.value, "numerical_error": self.numerical_error, "method": self.method}
        return pd.DataFrame([{**row, **self.details}])

    def __str__(self) -> str:
        return f"{self.value:.6g} (numerical error {self.numerical_error:.0e}, {self.method})"
