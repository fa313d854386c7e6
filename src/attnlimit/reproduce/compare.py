"""How far are measurements from predictions? In combined errors, said the same way by all."""

from __future__ import annotations

import numpy as np
import pandas as pd

COMPARED = ("predicted", "measured", "stderr")
"""The columns of rows that compare."""
OWN = "prediction_error"
"""The column of what a prediction says of its own error, where it says something."""
ROUNDING = 1e-12


def with_z(frame: pd.DataFrame) -> pd.DataFrame:
    """Add z, by how many combined errors the prediction is above the measurement.

    The standard error of the measurement and, in the column `prediction_error`, the prediction's
    own. There is none where nothing is random and the errors are but rounding.
    """
    own = frame[OWN].fillna(0.0) if OWN in frame else 0.0
    error = (frame["stderr"] ** 2 + own**2) ** 0.5
    gap = frame["predicted"] - frame["measured"]
    return frame.assign(z=gap / error.where(error > ROUNDING * frame["measured"].abs()))


def largest_z(frame: pd.DataFrame) -> float:
    """Return the largest |z|; NaN where nothing is compared."""
    return float(with_z(frame)["z"].abs().max())


def plus_minus(value: float, stderr: float) -> str:
    """Write a measurement and its standard error, to the second digit of that; or that none is."""
    if np.isnan(value):
        return "–"
    if not (np.isfinite([value, stderr]).all() and value and stderr > 0):
        return f"{value:.4g} ± {stderr:.2g}"
    high, low = np.floor(np.log10([abs(value), stderr])).astype(int)
    return f"{value:#.{np.clip(high - low + 2, 2, 8)}g}".rstrip(".") + f" ± {stderr:.2g}"


def said(frame: pd.DataFrame, value: str = "measured", stderr: str = "stderr") -> list[str]:
    """Write a column of measurements with its standard errors."""
    return [plus_minus(*both) for both in frame[[value, stderr]].to_numpy(float)]


def agreement(frame: pd.DataFrame, what: str = "") -> str:
    """Say how far predictions are from measurements, over all rows that have both."""
    said = f"{what}: predicted" if what else "Predicted"
    z = with_z(frame)["z"].dropna()
    both = frame.loc[z.index]
    both = both[both["measured"] != 0]
    if both.empty:
        return f"{said} against measured: nothing has both."
    gap = (both["predicted"] / both["measured"] - 1).abs()
    worst = both.iloc[int(gap.to_numpy().argmax())]
    return (
        f"{said} against measured at {len(z)} points: root mean square difference "
        f"{np.sqrt((z**2).mean()):.2f} combined errors, largest {z.abs().max():.1f}, "
        f"{int((z.abs() > 3).sum())} beyond 3; median distance {gap.median():.2%}, largest "
        f"{gap.max():.1%}, where the standard error is {worst['stderr'] / worst['measured']:.1%}."
    )
