"""Descriptions of figures: panels of lines and points, without plotting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from numpy.typing import ArrayLike

BARS = "bars: one standard error"
RINGS = "rings: more than 3 combined errors from the prediction"
"""Captions of error bars and rings, where a figure has any."""
REFERENCE = "reference"
"""Group of lines that are neither measured nor predicted: equality, zero, a level."""
NAMED = 7
"""Number of distinct colours."""


@dataclass(frozen=True)
class Series:
    """One line or one set of points.

    `style` is "line", "dashed", "dotted", "points" or "band" (then `lower` and `upper` bound it).
    Points have bars of `error`, one standard error, on either side (`x_error` where x is what was
    measured), and rings where `beyond`: more than three combined errors from what was predicted.
    Series of one `group` share a colour in all panels of a figure, those of `REFERENCE` are grey;
    only a series with a `label` enters the legend.
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
    x_error: ArrayLike | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes; scales are "log" or "linear".

    With `names` its y axis is a list: 0, 1, ... from below are called by them.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_scale: str = "log"
    y_scale: str = "log"
    y_limits: tuple[float, float] | None = None
    x_limits: tuple[float, float] | None = None
    legend_title: str | None = None
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class FigureSpec:
    """Panels side by side, wrapped after `columns`, with a `caption` below."""

    title: str
    panels: Sequence[Panel]
    columns: int = 2
    caption: str = ""

    @property
    def colours(self) -> dict[str | int | None, int | float]:
        """Colour of every group, the same in all panels.

        A whole number is one of `NAMED` colours, in order of appearance; a real one a position
        between 0 and 1 on a scale: of numbers where there are more groups, or of all.
        """
        series = [line for panel in self.panels for line in panel.series]
        groups = [g for g in dict.fromkeys(line.group for line in series) if g != REFERENCE]
        named = groups if len(groups) <= NAMED else [g for g in groups if not isinstance(g, Real)]
        named = named if len(named) <= NAMED else []
        scaled = [group for group in groups if group not in named]
        if all(isinstance(group, Real) for group in scaled):
            scaled.sort()
        places = {group: k / max(1, len(scaled) - 1) for k, group in enumerate(scaled)}
        return {group: k for k, group in enumerate(named)} | places

    @property
    def below(self) -> str:
        """The caption, with explanations of error bars and rings where there are any."""
        series = [line for panel in self.panels for line in panel.series]
        bars = any(line.error is not None or line.x_error is not None for line in series)
        rings = any(line.beyond is not None and any(line.beyond) for line in series)
        if not bars:
            return self.caption
        return "; ".join(filter(None, [self.caption.rstrip("."), BARS, RINGS if rings else ""]))
