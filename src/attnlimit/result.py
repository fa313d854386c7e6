"""Results: base classes with tables and plots, and conversion of values to text and JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit.picture import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 40


class Result(ABC):
    """A result that prints as a headline and a table.

    A subclass has `to_frame` and either `headline`, printed above the table, or `__str__`.
    """

    digits: ClassVar[int] = 5
    """Significant digits that are printed."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The table."""

    def headline(self) -> str:
        """One line above the table."""
        return str(self).splitlines()[0]

    def __str__(self) -> str:
        return f"{self.headline()}\n{self.to_frame().to_string(**self._format())}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.headline())}</p>{self.to_frame().to_html(**self._format())}"

    def _format(self) -> dict[str, Any]:
        rounded = f"{{:.{self.digits}g}}".format
        return {"index": False, "na_rep": "", "float_format": rounded, "max_rows": MOST_ROWS}


class Pictured(ABC):
    """A result with a plot: lines are theory, points with error bars are measured."""

    @abstractmethod
    def panel(self) -> Panel:
        """Describe the plot."""

    def plot(
        self, *others: Pictured, ax: Axes | None = None, label: str | None = None, color: str = ""
    ) -> Axes:
        """Plot with matplotlib.

        Parameters
        ----------
        *others : results
            Drawn into the same axes: ``predicted.plot(measured)``.
        ax : matplotlib Axes, optional
            Axes to draw into; those of a new figure by default.
        label : str, optional
            Label of the first line in the legend; the others have none then.
        color : str, optional
            Color of all lines; the next ones of the axes by default.

        Returns
        -------
        matplotlib Axes
        """
        panel = self.panel()
        series = list(panel.series)
        if label is not None:
            labels = [label, *[None] * (len(series) - 1)]
            series = [replace(line, label=text) for line, text in zip(series, labels, strict=True)]
        series += [line for other in others for line in other.panel().series]
        from attnlimit.plotting import plot

        axes: Axes = plot(replace(panel, series=series), ax, color)
        return axes


def table(**columns: ArrayLike) -> pd.DataFrame:
    """One row for each entry of columns that are broadcast against each other."""
    whole = np.broadcast_arrays(*columns.values())
    return pd.DataFrame({name: part.ravel() for name, part in zip(columns, whole, strict=True)})


def plain(value: Any, digits: int | None = None) -> Any:
    """Convert a value to what JSON can hold: NaN and infinities to null, other objects to text.

    `digits` is the number of significant digits to round to.
    """
    if isinstance(value, pd.DataFrame):
        value = value.to_dict(orient="records")
    if isinstance(value, dict):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray, pd.Series)):
        return [plain(item, digits) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            return None
        return float(value) if digits is None else float(f"{value:.{digits}g}")
    return value if value is None else str(value)


def cell(value: Any) -> str:
    """Format an entry of a table: four significant digits, nothing for a missing value."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def format_pm(value: float, error: float | None) -> str:
    """Format a number and its standard error, rounded to the digits that the error supports."""
    if error is None or not error > 0:
        return f"{value:.3g}"
    places = max(0, 1 - math.floor(math.log10(error) + 1))
    digits = places + (error * 10**places < 1.95)  # 0.0007 ± 0.0001 has too few digits
    if digits >= 9 or not math.isfinite(error):
        return f"{value:.2g} ± {error:.1g}"
    return f"{value:.{digits}f} ± {error:.{digits}f}"
