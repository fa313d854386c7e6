"""Figures drawn from their description: PNG and PDF by matplotlib, HTML by Plotly."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from attnlimit.picture import REFERENCE, FigureSpec, Panel, Series
from attnlimit.report.page import write_page
from attnlimit.report.run_page import figure_page

# Okabe and Ito's palette, readable by the colour blind, then a continuous map when groups are many.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#767676"
DASHES = {"line": "-", "dashed": "--", "dotted": ":"}
PANEL_SIZE = (4.6, 3.6)
MANY_LABELS = 4
# Drawn at the width at which a journal prints it, so that its letters are as large as they say.
COLUMN, PAGE = 3.4, 6.9  # inches
HEIGHTS = {1: 2.7, 2: 2.6, 3: 2.15}  # of a panel, by the panels in a row
TEXT: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.title_fontsize": 6.5,
    "figure.titlesize": 9,
    "lines.markersize": 2.6,
}
LETTERS = 15  # of a title, to an inch
CAPTION_LETTERS = 19  # of a caption


def draw(spec: FigureSpec, folder: Path, name: str) -> list[Path]:
    """Write `name`.png (300 dpi), .pdf and .html in `folder`; return their paths."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "pdf", "html")]
    figure = _static(spec)
    for path in paths[:2]:
        temporary = path.with_name(f".{path.name}")
        figure.savefig(temporary, dpi=300, format=path.suffix[1:])
        temporary.replace(path)
    write_page(paths[2], figure_page(spec))
    return paths


def _colours(spec: FigureSpec) -> dict[Any, str]:
    shade = mpl.colormaps["viridis"]
    colours = {
        group: PALETTE[at] if isinstance(at, int) else mpl.colors.to_hex(shade(0.93 * at))
        for group, at in spec.colours.items()
    }
    return colours | {REFERENCE: GREY}


def _static(spec: FigureSpec) -> Figure:
    columns = min(spec.columns, len(spec.panels), max(HEIGHTS))
    if len(spec.panels) == max(HEIGHTS):
        columns = max(HEIGHTS)  # a row of three has no hole
    rows = -(-len(spec.panels) // columns)
    width = COLUMN if columns == 1 else PAGE
    with mpl.rc_context(TEXT):
        legend, across = Legend.of(spec, width), width / columns
        below = 0.0 if legend is None or rows * columns > len(spec.panels) else legend.height
        height = HEIGHTS[columns] * rows + 0.6 + below
        figure = Figure(figsize=(width, height), layout="constrained")
        strip = [below] if below else []
        places = figure.add_gridspec(
            rows + len(strip), columns, height_ratios=[HEIGHTS[columns]] * rows + strip
        )
        colours = _colours(spec)
        for k, panel in enumerate(spec.panels):
            axis = figure.add_subplot(places[k // columns, k % columns])
            _draw_panel(axis, panel, colours, legend=legend is None)
            if k % columns and panel.names and panel.names == spec.panels[k - 1].names:
                axis.tick_params(labelleft=False)  # those of its neighbour serve
            axis.set_title(textwrap.fill(panel.title, round(LETTERS * across)))
            axis.set_ylabel(textwrap.fill(panel.y_label, round(LETTERS * HEIGHTS[columns])))
        if legend is not None:
            free = places[rows, :] if below else places[rows - 1, len(spec.panels) % columns :]
            legend.draw(figure, free, legend.columns if below else 1)
        title = textwrap.fill(spec.title, round(LETTERS * 0.85 * width))
        figure.suptitle(title, fontweight="bold")
        if spec.below:
            caption = textwrap.fill(spec.below, round(CAPTION_LETTERS * width))
            figure.supxlabel(caption, fontsize=6.5, color="0.3")
    return figure


@dataclass(frozen=True)
class Legend:
    """Legend of all panels of a figure: in a free place of the grid, or below the panels."""

    labels: Mapping[str, str]
    """Text of each label: with the title of its panel's legend before it."""
    columns: int

    @classmethod
    def of(cls, spec: FigureSpec, width: float) -> Legend | None:
        """Legend of a figure of this width; None for a panel with room for its own."""
        labels = {
            series.label: f"{panel.legend_title or ''} {series.label}".strip()
            for panel in spec.panels
            for series in panel.series
            if series.label
        }
        if not labels or (len(spec.panels) == 1 and len(labels) <= MANY_LABELS):
            return None
        across = max(map(len, labels.values())) / CAPTION_LETTERS + 0.5
        return cls(labels, max(1, min(len(labels), int(width / across))))

    @property
    def height(self) -> float:
        """Height below the panels, in inches."""
        return 0.15 * -(-len(self.labels) // self.columns) + 0.05

    def draw(self, figure: Figure, place: Any, columns: int) -> None:
        """Draw the legend in a place of a figure whose panels are drawn."""
        handles: dict[str, Any] = {}
        for axis in figure.axes:
            handles = dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True)) | handles
        empty = figure.add_subplot(place)
        empty.axis("off")
        shown = [handles[label] for label in self.labels]
        empty.legend(shown, self.labels.values(), loc="center", ncols=columns, frameon=False)


def plot(panel: Panel, axis: Any | None, color: str = "") -> Any:
    """Draw a panel into a user's axes, or into a new figure; groups take the next colours."""
    if axis is None:
        from matplotlib import pyplot

        _, axis = pyplot.subplots(figsize=PANEL_SIZE, layout="constrained")
        axis.set_prop_cycle(color=PALETTE)
    groups = dict.fromkeys(series.group for series in panel.series if series.group != REFERENCE)
    colours = {group: color or _next_colour(axis) for group in groups}
    _draw_panel(axis, panel, colours | {REFERENCE: GREY})
    return axis


def _next_colour(axis: Any) -> str:
    (line,) = axis.plot([], [])
    line.remove()
    return mpl.colors.to_hex(line.get_color())


def _draw_panel(axis: Any, panel: Panel, colours: dict[Any, str], *, legend: bool = True) -> None:
    for series in panel.series:
        _add_static(axis, series, colours[series.group])
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


def _add_static(axis: Any, series: Series, colour: str) -> None:
    x, y, look = series.x, series.y, {"color": colour, "label": series.label}
    if series.style == "band":
        axis.fill_between(x, series.lower, series.upper, alpha=0.2, linewidth=0, **look)
    elif series.style == "points":
        axis.errorbar(
            x,
            y,
            series.error,
            series.x_error,
            fmt="o",
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
