"""Rows of experiments: grouping, predictions against measurements, and estimates of rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype, is_scalar

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve
from attnlimit.errors import BadInput
from attnlimit.intervals import normal_score
from attnlimit.result import format_pm
from attnlimit.runs.folder import Config
from attnlimit.simulate.fit import MIN_POINTS, MIN_REPLICATES

COMPARED = ("predicted", "measured", "stderr")
"""Columns of rows that are compared."""
OWN = "prediction_error"
"""Column of a prediction's own error, if it states one."""
SKEWNESS = "skewness"
"""Column of a measurement's skewness, if it is known."""
INTERVAL = ("low", "high")
"""Columns of a prediction's 90 % interval, in place of its error."""
ROUNDING = 1e-12
BEYOND = 3.0
"""Combined errors past which a row is marked, in tables and figures."""
MARK = " !"
TYPICAL = 4
"""Draws that the scatter of all points counts for in `shared_scatter`."""
_LISTED, _PLACES = 6, 4


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


def with_z(frame: pd.DataFrame) -> pd.DataFrame:
    """Add z, the distance of a prediction above its measurement in combined errors.

    The errors are the standard error of the measurement and, in the column `prediction_error`, the
    prediction's own, or that of its 90 % interval. Where rows state the `skewness` of their
    measurements z is that of a normal variable. It is NaN where the errors are but rounding.
    """
    own: Any = 0.0
    if OWN in frame:
        own = frame[OWN].fillna(0.0)
    elif set(INTERVAL) <= set(frame):
        own = ((frame["high"] - frame["low"]) / (2 * 1.645)).fillna(0.0)
    error = (frame["stderr"] ** 2 + own**2) ** 0.5
    known = error.where(error > ROUNDING * frame["measured"].abs())
    z = (frame["predicted"] - frame["measured"]) / known
    if SKEWNESS in frame:
        share = (frame["stderr"] / known) ** 3  # the prediction's own error is taken as normal
        skew = (frame[SKEWNESS] * share).fillna(0.0)
        z = normal_score(z.to_numpy(float), -skew.to_numpy(float))
    return frame.assign(z=z)


def is_beyond(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether rows are more than three combined errors from their predictions."""
    return with_z(frame)["z"].abs() > BEYOND


def largest_z(frame: pd.DataFrame) -> float:
    """Return the largest |z|; NaN where nothing is compared."""
    return float(with_z(frame)["z"].abs().max())


def comparable(curves: pd.DataFrame) -> pd.DataFrame | None:
    """Return the rows that have a prediction and a measurement, or None.

    Errors may be called `measured_stderr` and `predicted_stderr`.
    """
    if not set(COMPARED) <= set(curves) and "predicted_stderr" in curves:
        curves = curves.rename(columns={"measured_stderr": "stderr", "predicted_stderr": OWN})
    if not set(COMPARED) <= set(curves):
        return None
    both = curves.dropna(subset=["predicted", "measured"])
    return None if both.empty else both


def shared_scatter(
    measured: pd.Series[float], stderr: pd.Series[float], draws: int
) -> pd.Series[float]:
    """Return standard errors from few draws, each mixed with that of all points.

    One may be near zero by chance. Relative errors of like points are of one order, so their mean
    square counts for `TYPICAL` draws.
    """
    relative = (stderr / measured.where(measured != 0)) ** 2
    mixed = (TYPICAL * relative.mean() + (draws - 1) * relative) / (TYPICAL + draws - 1)
    return (measured.abs() * mixed**0.5).fillna(stderr)


def agreement(frame: pd.DataFrame, what: str = "") -> str:
    """Describe the distance of predictions from measurements, over all rows that have both."""
    name = f"{what}: predicted" if what else "Predicted"
    z = with_z(frame)["z"].dropna()
    both = frame.loc[z.index]
    both = both[both["measured"] != 0]
    if both.empty:
        return f"{name} against measured: nothing has both."
    gap = (both["predicted"] / both["measured"] - 1).abs()
    worst = both.iloc[int(gap.to_numpy().argmax())]
    return (
        f"{name} against measured at {len(z)} points: root mean square difference "
        f"{np.sqrt((z**2).mean()):.2f} combined errors, largest {z.abs().max():.1f}, "
        f"{int((z.abs() > BEYOND).sum())} beyond 3; median distance {gap.median():.2%}, largest "
        f"{gap.max():.1%}, where the standard error is {worst['stderr'] / worst['measured']:.1%}."
    )


def beyond_listed(frame: pd.DataFrame) -> str:
    """List the rows beyond three combined errors, the farthest first, by their settings."""
    far = with_z(frame)[is_beyond(frame)]
    if far.empty:
        return "No row is more than 3 combined errors from its prediction."
    far = far.loc[far["z"].abs().sort_values(ascending=False).index]
    names = [str(name) for name in frame.columns if name not in (*COMPARED, OWN, SKEWNESS)]
    names = [name for name in names if _is_setting(frame[name])]
    names.sort(key=lambda name: is_float_dtype(frame[name]))
    rows = []
    for row in far.head(_LISTED).to_dict("records"):
        parts = ((name, row[name]) for name in names[:_PLACES])
        numbers = (f"{k} {v:g}" if isinstance(v, int | float) else f"{k} {v}" for k, v in parts)
        rows.append(f"{', '.join(numbers)} (z {row['z']:+.1f})")
    more = f" and {len(far) - _LISTED} more" if len(far) > _LISTED else ""
    return f"Beyond 3 combined errors: {'; '.join(rows)}{more}."


def _is_setting(column: pd.Series[Any]) -> bool:
    """Whether a column has few values that come again, and is not a result."""
    return 1 < column.nunique() <= max(len(column) // 3, 2) and not is_bool_dtype(column)


def marked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with z as text, those beyond three combined errors with a mark."""

    def text(z: float) -> str:
        return "–" if np.isnan(z) else f"{z:z.1f}{MARK if abs(z) > BEYOND else ''}"

    names = [name for name in ("z", "largest |z|") if name in table]
    numeric = [name for name in names if is_numeric_dtype(table[name])]
    return table.assign(**{name: [text(z) for z in table[name].astype(float)] for name in numeric})


def with_uncertainty(
    frame: pd.DataFrame, value: str = "measured", stderr: str = "stderr"
) -> list[str]:
    """Format a column of measurements with its standard errors."""
    pairs = frame[[value, stderr]].to_numpy(float)
    return ["–" if np.isnan(number) else format_pm(number, error) for number, error in pairs]


def check_rate(config: Config) -> None:
    """Refuse settings to which no rate can be fitted."""
    checks.token_counts(config["n"])
    if len(config["n"]) < MIN_POINTS:
        raise BadInput(
            f"n must have at least {MIN_POINTS} values, since a rate is fitted to them; got "
            f"{len(config['n'])}."
        )
    checks.count(config["replicates"], "replicates", smallest=MIN_REPLICATES)


def law_beside(curve: Curve, value: Array, error: Array) -> Curve:
    """Return the prediction, with its numerical error, at the n of a measured curve."""
    nothing = np.zeros(len(curve.n))
    return replace(curve, value=value, stderr=nothing, method="theory", numerical_error=error)


def rate(rows: pd.DataFrame, y: str = "measured") -> float:
    """Return the exponent with which a column falls with n, by least squares."""
    return float(-np.polyfit(np.log(rows["n"].to_numpy(float)), np.log(rows[y]), 1)[0])
