"""How far are measurements from predictions? In combined errors, said the same way by all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.skewed import straightened

COMPARED = ("predicted", "measured", "stderr")
"""The columns of rows that compare."""
OWN = "prediction_error"
"""The column of what a prediction says of its own error, where it says something."""
SKEWNESS = "skewness"
"""The column of a measurement's skewness, where its draws are known to have one."""
INTERVAL = ("low", "high")
"""The columns of a prediction's 90 % interval, where it has that instead."""
_INTERVAL_WIDTH = 2 * 1.645  # of a normal variable, in its deviations
ROUNDING = 1e-12
BEYOND = 3.0
"""Combined errors past which a row is marked, in tables and figures alike."""
MARK = " !"
TYPICAL = 4
"""Draws that points together count for."""
_LISTED = 6
_PLACES = 4


def with_z(frame: pd.DataFrame) -> pd.DataFrame:
    """Add z, by how many combined errors the prediction is above the measurement.

    The standard error of the measurement and, in the column `prediction_error`, the prediction's
    own, or that of its 90 % interval. Where rows state the `skewness` of their measurements z is
    that of a normal variable, by the cubic that intervals of curves have. There is none where
    nothing is random and the errors are but rounding.
    """
    own = frame[OWN].fillna(0.0) if OWN in frame else 0.0
    if OWN not in frame and set(INTERVAL) <= set(frame):
        own = ((frame["high"] - frame["low"]) / _INTERVAL_WIDTH).fillna(0.0)
    error = (frame["stderr"] ** 2 + own**2) ** 0.5
    known = error.where(error > ROUNDING * frame["measured"].abs())
    z = (frame["predicted"] - frame["measured"]) / known
    if SKEWNESS in frame:
        share = (frame["stderr"] / known) ** 3  # the prediction's own error is taken as normal
        skew = (frame[SKEWNESS] * share).fillna(0.0)
        return frame.assign(z=straightened(z.to_numpy(float), -skew.to_numpy(float)))
    return frame.assign(z=z)


def comparable(curves: pd.DataFrame) -> pd.DataFrame | None:
    """Return the rows that have a prediction and a measurement, or nothing if none has.

    Errors may be called `measured_stderr` and `predicted_stderr`.
    """
    named = curves
    if not set(COMPARED) <= set(curves) and "predicted_stderr" in curves:
        named = curves.rename(columns={"measured_stderr": "stderr", "predicted_stderr": OWN})
    if not set(COMPARED) <= set(named):
        return None
    found = named.dropna(subset=["predicted", "measured"])
    return None if found.empty else found


def shared_scatter(
    measured: pd.Series[float], stderr: pd.Series[float], draws: int
) -> pd.Series[float]:
    """Return standard errors from few draws, each mixed with what all points show together.

    One of its own may be near zero by chance. Relative errors of like points are of one order, so
    their mean square counts for `TYPICAL` draws.
    """
    relative = (stderr / measured.where(measured != 0)) ** 2
    mixed = (TYPICAL * relative.mean() + (draws - 1) * relative) / (TYPICAL + draws - 1)
    return (measured.abs() * mixed**0.5).fillna(stderr)


def is_beyond(frame: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are more than three combined errors from what was predicted."""
    return with_z(frame)["z"].abs() > BEYOND


def beyond_listed(frame: pd.DataFrame) -> str:
    """Name the rows beyond three combined errors, the farthest first, by what tells them apart."""
    far = with_z(frame)[is_beyond(frame)]
    if far.empty:
        return "No row is more than 3 combined errors from its prediction."
    far = far.loc[far["z"].abs().sort_values(ascending=False).index]
    names = [str(name) for name in frame.columns if name not in (*COMPARED, OWN, SKEWNESS)]
    apart = [name for name in names if _tells(frame[name])]
    apart.sort(key=lambda name: pd.api.types.is_float_dtype(frame[name]))
    rows = []
    for row in far.head(_LISTED).to_dict("records"):
        where = ", ".join(f"{name} {_short(row[name])}" for name in apart[:_PLACES])
        rows.append(f"{where} (z {row['z']:+.1f})")
    more = f" and {len(far) - _LISTED} more" if len(far) > _LISTED else ""
    return f"Beyond 3 combined errors: {'; '.join(rows)}{more}."


def marked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with z as text, those beyond three combined errors with a mark."""
    shown = {
        name: [
            "–" if np.isnan(z) else f"{z:z.1f}{MARK if abs(z) > BEYOND else ''}"
            for z in table[name].to_numpy(float)
        ]
        for name in ("z", "largest |z|")
        if name in table and pd.api.types.is_numeric_dtype(table[name])
    }
    return table.assign(**shown)


def _tells(column: pd.Series[Any]) -> bool:
    """Whether a column is a setting, with few values that come again, and not a result."""
    few = 1 < column.nunique() <= max(len(column) // 3, 2)
    return few and not pd.api.types.is_bool_dtype(column)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


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
