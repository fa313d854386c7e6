"""ErrorRate: a probability of error that behaves as a number and says how it was computed."""

from __future__ import annotations

import pandas as pd


class ErrorRate(float):
    """An error probability with its numerical error, the method, and the rule that attains it."""

    numerical_error: float
    method: str
    details: dict[str, float]

    def __new__(
        cls,
        value: float,
        numerical_error: float,
        method: str,
        details: dict[str, float] | None = None,
    ) -> ErrorRate:
        """Return `value` with its numerical error and where it came from."""
        rate = super().__new__(cls, value)
        rate.numerical_error = numerical_error
        rate.method = method
        rate.details = dict(details or {})
        return rate

    def to_frame(self) -> pd.DataFrame:
        """One row: error, numerical_error, method and the details."""
        row = {"error": float(self), "numerical_error": self.numerical_error}
        return pd.DataFrame([{**row, "method": self.method, **self.details}])

    def __str__(self) -> str:
        return f"{float(self):.6g} (numerical error {self.numerical_error:.0e}, {self.method})"
