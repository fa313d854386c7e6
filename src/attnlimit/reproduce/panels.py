"""Panels of figures: predictions as lines with bands, measurements as points with error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.reproduce.compare import COMPARED, OWN, groups, is_beyond

TOKENS = "number of tokens n"
LINEAR = {"x_scale": "linear", "y_scale": "linear"}
DRAWN = "lines: predicted; points: measured"


def panel(title: str, series: Iterable[Series], y: str, x: str = TOKENS, **options: Any) -> Panel:
    """Return a panel of any number of series, against the number of tokens by default."""
    return Panel(title, x, y, tuple(series), **options)


def points(
    rows: pd.DataFrame,
    x: str = "n",
    y: str = "measured",
    stderr: str = "stderr",
    label: str | None = None,
    group: str | None = None,
) -> Series:
    """Points with error bars where the rows have standard errors.

    Rings where a prediction is beside them and more than three combined errors away.
    """
    shown = rows[rows[y].notna()]
    bars, colour = shown.get(stderr), label if group is None else group
    compared = y == "measured" and set(COMPARED) <= set(shown)
    rings = is_beyond(shown).tolist() if compared else None
    return Series(shown[x], shown[y], "points", label, colour, bars, beyond=rings)


def pair(
    rows: pd.DataFrame, x: str = "n", label: str | None = None, group: str | None = None
) -> list[Series]:
    """A line of predictions, points of measurements, and a band of the predictions' own errors."""
    colour = label if group is None else group
    ordered = rows.sort_values(x, kind="stable")
    line = Series(ordered[x], ordered["predicted"], "line", label, colour)
    series = [line, points(ordered, x, group=colour)]
    if OWN in ordered:
        value, own = ordered["predicted"], ordered[OWN].fillna(0.0)
        low, high = (value - own).clip(lower=value * 1e-3), value + own
        series.append(Series(ordered[x], value, "band", None, colour, None, low, high))
    return series


def pairs(
    rows: pd.DataFrame,
    by: str,
    x: str = "n",
    names: Mapping[Any, str] | Callable[[Any], str] = str,
    legend: bool = True,
) -> list[Series]:
    """A `pair` for each value of a column, in its own colour, with its name in the legend."""
    name = names.__getitem__ if isinstance(names, Mapping) else names
    return [
        series
        for key, part in groups(rows, by)
        for series in pair(part, x, name(key) if legend else None, key)
    ]


def against(rows: pd.DataFrame, by: str, names: Mapping[Any, str]) -> list[Series]:
    """Measurements against predictions, coloured by a column, and the line of equality."""
    ends = np.array([rows["measured"].min() * 0.9, rows["measured"].max() * 1.1])
    return [
        Series(ends, ends, "dotted", "equal", REFERENCE),
        *(points(part, "predicted", label=names[key], group=key) for key, part in groups(rows, by)),
    ]


def marks(
    rows: pd.DataFrame, x: str, y: str, label: str | None, group: Any, *, width: float
) -> Series:
    """Short horizontal lines, `width` long along x, for predictions that no line joins."""
    ends = np.array([-0.5, 0.5, np.nan]) * width
    places = (rows[x].to_numpy(float)[:, None] + ends).ravel()
    return Series(places, np.repeat(rows[y].to_numpy(float), 3), "line", label, group)


def reach(rows: pd.DataFrame, x: str, group: Any) -> Series:
    """Vertical lines of the predictions' own errors, for predictions that no line joins."""
    ends = np.array([-1.0, 1.0, np.nan])
    value, own = (rows[name].to_numpy(float)[:, None] for name in ("predicted", OWN))
    return Series(np.repeat(rows[x].to_numpy(float), 3), (value + own * ends).ravel(), group=group)
