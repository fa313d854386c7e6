"""ErrorRate: a probability of error that says how it was computed, and how exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from attnlimit.result import Result
from attnlimit.sparse.number import Number


@dataclass(frozen=True, eq=False)
class ErrorRate(Number, Result):
    """An error probability with its numerical error, the method, and the rule that attains it."""

    value: float
    numerical_error: float
    method: str
    details: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_draws(
        cls, draws: Sequence[float], most: float, method: str, **details: float
    ) -> ErrorRate:
        """Return the mean over independent draws, at `most`, with its standard error."""
        many = len(draws)
        spread = float(np.std(draws, ddof=1) / np.sqrt(many)) if many > 1 else np.nan
        return cls(min(float(np.mean(draws)), most), spread, method, details)

    def to_frame(self) -> pd.DataFrame:
        """One row: error, numerical_error, method and the details."""
        row = {"error": self.value, "numerical_error": self.numerical_error, "method": self.method}
        return pd.DataFrame([{**row, **self.details}])

    def __str__(self) -> str:
        return f"{self.value:.6g} (numerical error {self.numerical_error:.0e}, {self.method})"
