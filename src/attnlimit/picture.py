"""What is in a figure? Panels of lines (predictions) and points (measurements), and no plotting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

BARS = "bars: one standard error"
"""What every figure says of its error bars, and what `Series.error` holds."""
RINGS = "rings: more than 3 combined errors from the prediction"
"""What a figure says of its rings, where it has any."""


@dataclass(frozen=True)
class Series:
    """One line or one set of points.

    `style` is "line", "dashed", "dotted", "points" or "band" (then `lower` and `upper` bound it).
    Points have bars of `error`, one standard error, on either side, and rings where `beyond`: more
    than three combined errors from what was predicted.
    Series of one `group` share a colour; only a series with a `label` enters the legend.
    """

    x: ArrayLike
    y: ArrayLike
    style: str = "line"
    label: str | None = None
    group: str | int | None = None
    error: ArrayLike | None = None
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    beyond: Sequence[bool] | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes; scales are "log" or "linear"."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_scale: str = "log"
    y_scale: str = "log"
    y_limits: tuple[float, float] | None = None
    x_limits: tuple[float, float] | None = None
    legend_title: str | None = None


@dataclass(frozen=True)
class FigureSpec:
    """Panels side by side, wrapped after `columns`; `caption` is printed below."""

    title: str
    panels: Sequence[Panel]
    columns: int = 2
    caption: str = ""

    @property
    def below(self) -> str:
        """The caption, and what bars and rings are where there are any."""
        series = [one for panel in self.panels for one in panel.series]
        bars = any(one.error is not None for one in series)
        rings = any(one.beyond is not None and any(one.beyond) for one in series)
        if not bars:
            return self.caption
        return "; ".join(filter(None, [self.caption.rstrip("."), BARS, RINGS if rings else ""]))
