"""How is a figure drawn? From its description: PNG and PDF for papers, HTML for the screen."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.report.page import write_page
from attnlimit.report.run_page import figure_page

# Okabe and Ito's palette, readable by the colour blind, then a continuous map when groups are many.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = {"line": "-", "dashed": "--", "dotted": ":"}
PANEL_SIZE = (4.6, 3.6)
MANY_LABELS = 4
CAPTION_WIDTH = 75  # letters under one panel


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


def _colours(panel: Panel) -> dict[Any, str]:
    groups = list(dict.fromkeys(series.group for series in panel.series))
    if len(groups) <= len(PALETTE):
        return dict(zip(groups, PALETTE, strict=False))
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.93, len(groups)))
    return {group: mpl.colors.to_hex(shade) for group, shade in zip(groups, shades, strict=True)}


def _static(spec: FigureSpec) -> Figure:
    columns = min(spec.columns, len(spec.panels))
    rows = -(-len(spec.panels) // columns)
    figure = Figure(figsize=(PANEL_SIZE[0] * columns, PANEL_SIZE[1] * rows + 0.7))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(spec.panels) :]:
        axis.axis("off")
    for axis, panel in zip(axes, spec.panels, strict=False):
        _draw_panel(axis, panel, _colours(panel))
    figure.suptitle(spec.title, fontsize=12, fontweight="bold")
    if spec.below:
        caption = textwrap.fill(spec.below, CAPTION_WIDTH * columns)
        figure.supxlabel(caption, fontsize=8, color="0.3")
    return figure


def plot(panel: Panel, axis: Any | None, color: str = "") -> Any:
    """Draw a panel into a user's axes, or into a new figure; groups take the next colours."""
    if axis is None:
        from matplotlib import pyplot

        _, axis = pyplot.subplots(figsize=PANEL_SIZE, layout="constrained")
        axis.set_prop_cycle(color=PALETTE)
    groups = list(dict.fromkeys(series.group for series in panel.series))
    _draw_panel(axis, panel, {group: color or _next_colour(axis) for group in groups})
    return axis


def _next_colour(axis: Any) -> str:
    (line,) = axis.plot([], [])
    line.remove()
    return mpl.colors.to_hex(line.get_color())


def _draw_panel(axis: Any, panel: Panel, colours: dict[Any, str]) -> None:
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
    axis.title.set_fontsize(10)
    labelled = len(axis.get_legend_handles_labels()[1])
    if labelled:
        outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        axis.legend(
            fontsize=7,
            frameon=False,
            title=panel.legend_title,
            title_fontsize=7,
            **(outside if labelled > MANY_LABELS else {}),
        )


def _readable_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 within a decade, and only powers of ten over several."""
    low, high = sorted(axis.get_view_interval())
    axis.set_minor_formatter(NullFormatter())
    if low > 0 and high / low < 50:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _add_static(axis: Any, series: Series, colour: str) -> None:
    x, y, look = series.x, series.y, {"color": colour, "label": series.label}
    if series.style == "band":
        axis.fill_between(x, series.lower, series.upper, alpha=0.2, linewidth=0, **look)
    elif series.style == "points":
        axis.errorbar(
            x, y, series.error, fmt="o", markersize=3.2, elinewidth=0.9, capsize=2, zorder=3, **look
        )
        if series.beyond is not None and any(series.beyond):
            ringed = np.asarray(series.beyond)
            places = np.asarray(x)[ringed], np.asarray(y)[ringed]
            axis.plot(
                *places, "o", markersize=8, fillstyle="none", markeredgewidth=0.9, color=colour
            )
    else:
        axis.plot(x, y, linestyle=DASHES[series.style], linewidth=1.3, **look)
