"""A panel drawn with matplotlib, into a user's axes or those of a figure."""

from __future__ import annotations

from numbers import Real
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from attnlimit.picture import REFERENCE, Panel, Series

# Dark, middle and light first: they differ in greyscale, and for the colour blind.
PALETTE = ("#003B6F", "#B03A00", "#18B08A", "#CC79A7", "#8C6BB1", "#56B4E9", "#000000")
GREY = "#767676"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")
"""Of groups in their order, so that points differ in greyscale; groups of numbers have circles."""
DASHES = {"line": "-", "dashed": "--", "dotted": ":"}
PANEL_SIZE = (4.6, 3.6)


def plot(panel: Panel, axis: Any | None, color: str = "") -> Any:
    """Draw a panel into a user's axes, or into a new figure; groups take the next colours."""
    if axis is None:
        from matplotlib import pyplot

        _, axis = pyplot.subplots(figsize=PANEL_SIZE, layout="constrained")
        axis.set_prop_cycle(color=PALETTE)
    groups = dict.fromkeys(series.group for series in panel.series if series.group != REFERENCE)
    colours = {group: color or _next_colour(axis) for group in groups}
    draw_panel(axis, panel, colours | {REFERENCE: GREY})
    return axis


def _next_colour(axis: Any) -> str:
    (line,) = axis.plot([], [])
    line.remove()
    return mpl.colors.to_hex(line.get_color())


def draw_panel(axis: Any, panel: Panel, colours: dict[Any, str], *, legend: bool = True) -> None:
    """Draw a panel into axes, each group in its colour."""
    shapes = {
        group: "o" if isinstance(group, Real) else MARKERS[place % len(MARKERS)]
        for place, group in enumerate(colours)
    }
    for series in panel.series:
        _add_static(axis, series, colours[series.group], shapes[series.group])
    axis.set(
        title=panel.title,
        xlabel=panel.x_label,
        ylabel=panel.y_label,
        xscale=panel.x_scale,
        yscale=panel.y_scale,
        **({"xlim": panel.x_limits} if panel.x_limits else {}),
        **({"ylim": panel.y_limits} if panel.y_limits else {}),
    )
    for line, scale in ((axis.xaxis, panel.x_scale), (axis.yaxis, panel.y_scale)):
        if scale == "log":
            _readable_ticks(line)
    axis.grid(True, which="major", alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if panel.names is not None:
        axis.set_yticks(range(len(panel.names)), panel.names)
        axis.set_ylim(-0.6, len(panel.names) - 0.4)
    if legend and axis.get_legend_handles_labels()[1]:
        axis.legend(framealpha=0.7, edgecolor="none", title=panel.legend_title)


def _readable_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 within two decades, more within a part of one, else powers of ten."""
    low, high = sorted(axis.get_view_interval())
    axis.set_minor_formatter(NullFormatter())
    if low > 0 and high / low < 120:
        steps = (1.0, 2.0, 5.0) if high / low > 5 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _add_static(axis: Any, series: Series, colour: str, shape: str) -> None:
    x, y, look = series.x, series.y, {"color": colour, "label": series.label}
    if series.style == "band":
        axis.fill_between(x, series.lower, series.upper, alpha=0.2, linewidth=0, **look)
    elif series.style == "points":
        axis.errorbar(
            x,
            y,
            series.error,
            series.x_error,
            fmt=shape,
            elinewidth=0.8,
            capsize=1.5,
            zorder=3,
            **look,
        )
        if series.beyond is not None and any(series.beyond):
            ringed = np.asarray(series.beyond)
            places = np.asarray(x)[ringed], np.asarray(y)[ringed]
            axis.plot(
                *places, "o", markersize=7, fillstyle="none", markeredgewidth=0.9, color=colour
            )
    else:
        axis.plot(x, y, linestyle=DASHES[series.style], linewidth=1.3, **look)
