"""How is a figure drawn? From its description: PNG and PDF for papers, HTML for the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import plotly.graph_objects as go
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from plotly.subplots import make_subplots

from attnlimit.files import write_atomically
from attnlimit.report.spec import FigureSpec, Panel, Series

# Okabe and Ito's palette, readable by the colour blind, then a continuous map when groups are many.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = {"line": "-", "dashed": "--", "dotted": ":"}
PLOTLY_DASHES = {"line": "solid", "dashed": "dash", "dotted": "dot"}
PANEL_SIZE = (4.6, 3.6)
MANY_LABELS = 4


def draw(spec: FigureSpec, folder: Path, name: str) -> list[Path]:
    """Write `name`.png (300 dpi), .pdf and .html in `folder`; return their paths."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "pdf", "html")]
    figure = _static(spec)
    for path in paths[:2]:
        temporary = path.with_name(f".{path.name}")
        figure.savefig(temporary, dpi=300, format=path.suffix[1:])
        temporary.replace(path)
    page = _interactive(spec).to_html(include_plotlyjs=True, full_html=True)
    write_atomically(paths[2], page.encode())
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
        colours = _colours(panel)
        for series in panel.series:
            _add_static(axis, series, colours[series.group])
        axis.set(
            title=panel.title,
            xlabel=panel.x_label,
            ylabel=panel.y_label,
            xscale=panel.x_scale,
            yscale=panel.y_scale,
        )
        if panel.y_limits:
            axis.set_ylim(*panel.y_limits)
        if panel.x_limits:
            axis.set_xlim(*panel.x_limits)
        for line, scale in ((axis.xaxis, panel.x_scale), (axis.yaxis, panel.y_scale)):
            if scale == "log":
                _readable_ticks(line)
        axis.grid(True, which="major", alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(10)
        labelled = sum(series.label is not None for series in panel.series)
        if labelled:
            outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
            axis.legend(
                fontsize=7,
                frameon=False,
                title=panel.legend_title,
                title_fontsize=7,
                **(outside if labelled > MANY_LABELS else {}),
            )
    figure.suptitle(spec.title, fontsize=12, fontweight="bold")
    if spec.caption:
        figure.supxlabel(spec.caption, fontsize=8, color="0.3")
    return figure


def _readable_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 within a decade, and only powers of ten over several."""
    low, high = sorted(axis.get_view_interval())
    axis.set_minor_formatter(NullFormatter())
    if low > 0 and high / low < 50:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _add_static(axis: Any, series: Series, colour: str) -> None:
    if series.style == "band":
        axis.fill_between(
            series.x,
            series.lower,
            series.upper,
            color=colour,
            alpha=0.2,
            linewidth=0,
            label=series.label,
        )
    elif series.style == "points":
        axis.errorbar(
            series.x,
            series.y,
            yerr=series.error,
            fmt="o",
            markersize=3.2,
            color=colour,
            elinewidth=0.9,
            capsize=2,
            label=series.label,
            zorder=3,
        )
    else:
        axis.plot(
            series.x,
            series.y,
            linestyle=DASHES[series.style],
            color=colour,
            linewidth=1.3,
            label=series.label,
        )


def _interactive(spec: FigureSpec) -> go.Figure:
    columns = min(spec.columns, len(spec.panels))
    rows = -(-len(spec.panels) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[panel.title for panel in spec.panels],
        horizontal_spacing=0.1,
        vertical_spacing=0.16 if rows > 1 else 0.1,
    )
    for index, panel in enumerate(spec.panels):
        row, column = index // columns + 1, index % columns + 1
        colours = _colours(panel)
        for series in panel.series:
            for trace in _traces(series, colours[series.group], index):
                figure.add_trace(trace, row=row, col=column)
        figure.update_xaxes(
            title_text=panel.x_label,
            type=panel.x_scale,
            row=row,
            col=column,
            range=_range(panel.x_limits, panel.x_scale),
        )
        figure.update_yaxes(
            title_text=panel.y_label,
            type=panel.y_scale,
            row=row,
            col=column,
            range=_range(panel.y_limits, panel.y_scale),
        )
    figure.update_layout(
        title=f"{spec.title}<br><sup>{spec.caption}</sup>" if spec.caption else spec.title,
        template="plotly_white",
        height=430 * rows + 90,
        hovermode="closest",
        legend={"font": {"size": 10}},
        margin={"t": 110},
    )
    return figure


def _range(limits: tuple[float, float] | None, scale: str) -> list[float] | None:
    if limits is None:
        return None
    return [float(np.log10(v)) if scale == "log" else float(v) for v in limits]


def _traces(series: Series, colour: str, panel: int) -> list[go.Scatter]:
    x = np.asarray(series.x, dtype=float)
    shared: dict[str, Any] = {
        "name": series.label or "",
        "showlegend": series.label is not None,
        "legendgroup": f"{panel}-{series.group}",
    }
    if series.style == "band":
        edge = np.concatenate([np.asarray(series.upper), np.asarray(series.lower)[::-1]])
        return [
            go.Scatter(
                x=np.concatenate([x, x[::-1]]),
                y=edge,
                fill="toself",
                mode="lines",
                line={"width": 0},
                fillcolor=colour,
                opacity=0.2,
                hoverinfo="skip",
                **shared,
            )
        ]
    y = np.asarray(series.y, dtype=float)
    if series.style == "points":
        bars = None if series.error is None else {"array": np.asarray(series.error), "thickness": 1}
        marker = {"color": colour, "size": 6}
        return [go.Scatter(x=x, y=y, error_y=bars, mode="markers", marker=marker, **shared)]
    line = {"color": colour, "width": 1.6, "dash": PLOTLY_DASHES[series.style]}
    return [go.Scatter(x=x, y=y, mode="lines", line=line, **shared)]
