"""How is a number written in a table? Short, with its error, and rarely as a power of ten."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

UNSEEN = 1e-6
"""Relative errors below this are not shown."""


def number(value: float, digits: int = 3) -> str:
    """Some digits of a number; nothing where there is none."""
    if not np.isfinite(value):
        return "" if np.isnan(value) else "∞"
    if value == 0:
        return "0"
    size = int(np.floor(np.log10(abs(float(f"{value:.{digits - 1}e}")))))
    if size < -5 or size > 6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(digits - 1 - size, 0)}f}"


def measured(value: float, stderr: float) -> str:
    """A measurement and its standard error, to two digits of that if it begins with 1 or 2."""
    if not np.isfinite(value):
        return ""
    if not np.isfinite(stderr) or stderr <= 0:
        return number(value)
    if stderr < UNSEEN * abs(value):
        return number(value, 4)
    size = int(np.floor(np.log10(stderr)))
    places = max((1 if stderr < 3 * 10.0**size else 0) - size, 0)
    if places > 7:
        return f"{value:.3e} ± {stderr:.0e}"
    return f"{value:.{places}f} ± {stderr:.{places}f}"


def restated(said: object) -> str:
    """A cell of a command's own table, in the way of these pages."""
    text = str(said)
    if text in ("–", "nan"):
        return ""
    value, _, stderr = text.partition(" ± ")
    return measured(float(value), float(stderr)) if stderr else number(float(value))


def interval(middle: float, low: float, high: float, places: int = 3) -> str:
    """A forecast and its interval."""
    return f"{middle:.{places}f} ({low:.{places}f} to {high:.{places}f})"


def percent(value: float, places: int = 1) -> str:
    """A share."""
    return "" if np.isnan(value) else f"{100 * value:.{places}f} %"


def spaced(sentence: str) -> str:
    """A sentence with room before its percent signs."""
    return re.sub(r"(\d)%", r"\1 %", sentence)


def setting(value: float) -> str:
    """A number that was chosen."""
    return f"{value:g}"


def power(value: float) -> str:
    """A number of tokens, as a power of ten if it is one."""
    exponent = round(np.log10(value))
    if exponent > 3 and value == 10**exponent:
        return "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:,.0f}" if value >= 1e6 else f"{value:g}"


def article(name: str) -> str:
    """The title of a text: "wikipedia:Anarchism" is *Anarchism*, "sotu:Kennedy 1962" an address."""
    kind, _, title = name.partition(":")
    return f"*{title}*" if kind == "wikipedia" else title


def once(column: Iterable[object]) -> list[str]:
    """A column in which a value that comes again is left out."""
    values = list(map(str, column))
    return [one if k == 0 or one != values[k - 1] else "" for k, one in enumerate(values)]


def pairs(frame: pd.DataFrame, value: str = "measured", stderr: str = "stderr") -> list[str]:
    """A column of measurements with their standard errors."""
    return [measured(*both) for both in frame[[value, stderr]].to_numpy(float)]


def numbers(column: Iterable[float], digits: int = 3) -> list[str]:
    """A column of numbers."""
    return [number(float(one), digits) for one in column]
