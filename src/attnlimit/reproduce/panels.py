"""How is a prediction drawn beside its measurement? A line, and points with error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.reproduce.compare import COMPARED, OWN, comparable, is_beyond
from attnlimit.reproduce.rows import groups

TOKENS = "number of tokens n"
LINEAR = {"x_scale": "linear", "y_scale": "linear"}
DRAWN = "lines: predicted; points: measured"


def points(
    rows: pd.DataFrame,
    x: str = "n",
    y: str = "measured",
    stderr: str = "stderr",
    label: str | None = None,
    group: str | None = None,
) -> Series:
    """Draw what was measured, with bars where the rows have standard errors.

    Rings where a prediction is beside it and more than three combined errors away.
    """
    shown = rows[rows[y].notna()]
    bars, colour = shown.get(stderr), label if group is None else group
    compared = y == "measured" and set(COMPARED) <= set(shown)
    rings = is_beyond(shown).tolist() if compared else None
    return Series(shown[x], shown[y], "points", label, colour, bars, beyond=rings)


def pair(
    rows: pd.DataFrame,
    x: str = "n",
    label: str | None = None,
    group: str | None = None,
    *,
    predicted: str = "predicted",
    measured: str = "measured",
    stderr: str = "stderr",
) -> list[Series]:
    """Draw a line of predictions and, in its colour, points of measurements."""
    colour = label if group is None else group
    ordered = rows.sort_values(x, kind="stable")
    line = Series(ordered[x], ordered[predicted], "line", label, colour)
    drawn = [line, points(ordered, x, measured, stderr, group=colour)]
    if predicted == "predicted" and OWN in ordered:
        value, own = ordered[predicted], ordered[OWN].fillna(0.0)
        low, high = (value - own).clip(lower=value * 1e-3), value + own
        drawn.append(Series(ordered[x], value, "band", None, colour, None, low, high))
    return drawn


def pairs(
    rows: pd.DataFrame,
    by: str,
    x: str = "n",
    names: Mapping[Any, str] | Callable[[Any], str] = str,
    legend: bool = True,
) -> list[Series]:
    """Draw a pair for each value of a column, named after it, in its own colour."""
    name = names.__getitem__ if isinstance(names, Mapping) else names
    return [
        one
        for key, part in groups(rows, by)
        for one in pair(part, x, name(key) if legend else None, key)
    ]


def against(rows: pd.DataFrame, by: str, names: Mapping[Any, str]) -> list[Series]:
    """Draw measurements against predictions, coloured by a column, and where they are equal."""
    ends = np.array([rows["measured"].min() * 0.9, rows["measured"].max() * 1.1])
    return [
        Series(ends, ends, "dotted", "equal", REFERENCE),
        *(points(part, "predicted", label=names[key], group=key) for key, part in groups(rows, by)),
    ]


def marks(
    rows: pd.DataFrame, x: str, y: str, label: str | None, group: Any, *, width: float
) -> Series:
    """Draw predictions that no line joins: a short line across each, `width` long along x."""
    ends = np.array([-0.5, 0.5, np.nan]) * width
    places = (rows[x].to_numpy(float)[:, None] + ends).ravel()
    return Series(places, np.repeat(rows[y].to_numpy(float), 3), "line", label, group)


def reach(rows: pd.DataFrame, x: str, group: Any) -> Series:
    """Draw what predictions that no line joins may be off by: a line up and down from each."""
    ends = np.array([-1.0, 1.0, np.nan])
    value, own = (rows[name].to_numpy(float)[:, None] for name in ("predicted", OWN))
    return Series(np.repeat(rows[x].to_numpy(float), 3), (value + own * ends).ravel(), group=group)


def rungs(
    rows: pd.DataFrame, order: list[str], by: str, label: str | None, group: Any
) -> list[Series]:
    """Draw rows as a list from below: measurements as points, predictions as lines across."""
    place = rows[by].map(order.index).to_numpy(float)
    high = (place[:, None] + np.array([-0.36, 0.36, np.nan])).ravel()
    told = np.repeat(rows["predicted"].to_numpy(float), 3)
    return [Series(told, high, "line", None, group), across(rows.assign(place=place), label, group)]


def across(rows: pd.DataFrame, label: str | None, group: Any, x: str = "measured") -> Series:
    """Draw what was measured along x, at the rows' `place` in a list, with bars and rings."""
    shown = rows[rows[x].notna()]
    bars = shown.get("stderr" if x == "measured" and "stderr" in shown else f"{x}_stderr")
    far = comparable(shown) if x == "measured" else None
    rings = None if far is None else is_beyond(far).reindex(shown.index, fill_value=False).tolist()
    return Series(shown[x], shown["place"], "points", label, group, beyond=rings, x_error=bars)


def panel(title: str, series: Iterable[Series], y: str, x: str = TOKENS, **options: Any) -> Panel:
    """Return a panel of any number of series, against the number of tokens if nothing is said."""
    return Panel(title, x, y, tuple(series), **options)
