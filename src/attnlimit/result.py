"""How does a result show itself? As a headline with a table below, and as a picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit.picture import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 40


class Result(ABC):
    """Something computed that prints as its headline and its table; give one of two texts.

    A subclass has `to_frame` and either `headline`, printed above the table, or `__str__`.
    """

    digits: ClassVar[int] = 5  # that are printed

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The table."""

    def headline(self) -> str:
        """What the table is about, and what none of its rows says."""
        return str(self).splitlines()[0]

    def __str__(self) -> str:
        shown = self.to_frame().to_string(
            index=False,
            na_rep="",
            float_format=lambda v: f"{v:.{self.digits}g}",
            max_rows=MOST_ROWS,
        )
        return f"{self.headline()}\n{shown}"

    def _repr_html_(self) -> str:
        shown = self.to_frame().to_html(
            index=False,
            na_rep="",
            float_format=lambda v: f"{v:.{self.digits}g}",
            max_rows=MOST_ROWS,
        )
        return f"<p>{escape(self.headline())}</p>{shown}"


class Pictured(ABC):
    """Something that can be drawn: lines are theory, points with bars are measured."""

    @abstractmethod
    def panel(self) -> Panel:
        """Describe the picture."""

    def plot(
        self, *others: Pictured, ax: Axes | None = None, label: str | None = None, color: str = ""
    ) -> Axes:
        """Draw it with matplotlib, and `others` into the same axes.

        Parameters
        ----------
        *others : results
            Drawn on top: ``predicted.plot(measured)`` puts both in one picture.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        label : str, optional
            What the legend says in place of its own words.
        color : str, optional
            Of everything that is drawn, in place of the next ones of the axes.

        Returns
        -------
        matplotlib Axes
        """
        panel = self.panel()
        if label is not None:
            first = replace(panel.series[0], label=label)
            rest = [replace(one, label=None) for one in panel.series[1:]]
            panel = replace(panel, series=[first, *rest])
        more = [one for other in others for one in other.panel().series]
        whole = replace(panel, series=[*panel.series, *more])
        # By name: whoever draws stands above those who are drawn.
        axes: Axes = import_module("attnlimit.report.figures").plot(whole, ax, color)
        return axes


def table(**columns: ArrayLike) -> pd.DataFrame:
    """One row for each entry of columns that are broadcast against each other."""
    whole = np.broadcast_arrays(*columns.values())
    return pd.DataFrame({name: part.ravel() for name, part in zip(columns, whole, strict=True)})
