"""Figures drawn from their description: PNG and PDF by matplotlib, HTML by Plotly."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from attnlimit.picture import REFERENCE, FigureSpec
from attnlimit.plotting import GREY, PALETTE, draw_panel
from attnlimit.report.page import figure_page, write_page

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
        figure.set_layout_engine("none")  # both files have one layout
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
    labels = {
        series.label: f"{panel.legend_title or ''} {series.label}".strip()
        for panel in spec.panels
        for series in panel.series
        if series.label
    }
    # one panel has room for its legend
    own = not labels or (len(spec.panels) == 1 and len(labels) <= MANY_LABELS)
    across = int(width / (max(map(len, labels.values()), default=1) / CAPTION_LETTERS + 0.5))
    across = max(1, min(len(labels), across))
    with mpl.rc_context(TEXT):
        legend = [] if own else [0.05 + 0.15 * -(-len(labels) // across)]
        ratios = [HEIGHTS[columns]] * rows + legend
        figure = Figure(figsize=(width, sum(ratios) + 0.6), layout="constrained")
        places = figure.add_gridspec(len(ratios), columns, height_ratios=ratios)
        colours = _colours(spec)
        handles: dict[str, Any] = {}
        for k, panel in enumerate(spec.panels):
            axis = figure.add_subplot(places[k // columns, k % columns])
            draw_panel(axis, panel, colours, legend=own)
            handles = dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True)) | handles
            if k % columns and panel.names and panel.names == spec.panels[k - 1].names:
                axis.tick_params(labelleft=False)  # those of its neighbour serve
            axis.set_title(textwrap.fill(panel.title, round(LETTERS * width / columns)))
            axis.set_ylabel(textwrap.fill(panel.y_label, round(LETTERS * HEIGHTS[columns])))
        if legend:
            strip = figure.add_subplot(places[rows, :])
            strip.axis("off")
            shown = [handles[label] for label in labels], list(labels.values())
            strip.legend(*shown, loc="center", ncols=across, frameon=False)
        title = textwrap.fill(spec.title, round(LETTERS * 0.85 * width))
        figure.suptitle(title, fontweight="bold")
        if spec.below:
            caption = textwrap.fill(spec.below, round(CAPTION_LETTERS * width))
            figure.supxlabel(caption, fontsize=6.5, color="0.3")
    return figure
