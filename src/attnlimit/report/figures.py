"""Figures drawn from their description: PNG and PDF by matplotlib, HTML by Plotly."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from attnlimit.picture import REFERENCE, FigureSpec
from attnlimit.plotting import GREY, PALETTE, draw_panel
from attnlimit.report.page import write_page
from attnlimit.report.run_page import figure_page

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
            draw_panel(axis, panel, colours, legend=legend is None)
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
