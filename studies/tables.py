"""Write the tables and pictures of a study for the documentation.

A study is a script that ends with `write_tables({"name": frame})`: each frame is printed and
written to docs/tables/name.md with the command, the version, the day and the seconds. A column
`x_stderr` (`stderr` for `measured`) is shown as the standard error of the column `x`, `x stderr` as
that of `x measured` or else of `x`, and `x numerical error` as the error of `x`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

import attnlimit
from attnlimit.files import write_atomically

PROJECT = Path(__file__).resolve().parents[1]
TABLES = Path(os.environ.get("ATTNLIMIT_TABLES", PROJECT / "docs" / "tables"))
NEGLIGIBLE = 1e-6
"""Relative standard errors below this are not shown."""
ERRORS_OF = {"stderr": "measured", "prediction_error": "predicted"}
"""Columns that hold the standard error of another one, beside all named `<column>_stderr`."""


def write_tables(
    tables: Mapping[str, pd.DataFrame], *, command: str = "", seconds: float | None = None
) -> None:
    """Print the tables, write them as fragments, and list the run with all others.

    `command` and `seconds` are those of this process unless given; its seconds are processor time.
    """
    source: dict[str, Any] = {
        "command": command or this_command(),
        "version": attnlimit.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": sum(os.times()[:4]) if seconds is None else seconds,
    }
    for name, frame in tables.items():
        print(f"\n{name}:\n{frame.to_string(index=False)}")
        write_fragment(TABLES, name, frame, source)
    if (TABLES / "all-runs.md").exists():
        row = {
            "what": str(sys.modules["__main__"].__doc__).splitlines()[0].removesuffix("."),
            "command": f"`{source['command']}`",
            "version, day": f"{source['version']}, {source['created'][:10]}",
            "seconds": round(float(source["seconds"])),
        }
        update_rows(TABLES / "all-runs.md", pd.DataFrame([row]), "command")


class SavedRows:
    """Rows of a study in a file of JSON lines, so that a run that was stopped goes on.

    Each row has the seconds since the one before it, which `seconds` adds up.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.path, self.rows, self.last = path, [json.loads(line) for line in lines], perf_counter()

    def has(self, **cells: Any) -> bool:
        """Whether some row has these cells."""
        return any(all(row.get(k) == v for k, v in cells.items()) for row in self.rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row to the file."""
        now = perf_counter()
        self.rows.append({**row, "seconds": now - self.last})
        self.last = now
        with self.path.open("a") as file:
            file.write(json.dumps(self.rows[-1]) + "\n")
        print(row, flush=True)

    @property
    def seconds(self) -> float:
        """Time of all rows."""
        return float(sum(row["seconds"] for row in self.rows))

    def frame(self) -> pd.DataFrame:
        """All rows."""
        return pd.DataFrame(self.rows).drop(columns="seconds")


def this_command() -> str:
    """Return the command that started this study, from the project's folder."""
    script = Path(sys.argv[0]).resolve().relative_to(PROJECT)
    return shlex.join(["python", script.as_posix(), *sys.argv[1:]])


def format_number(value: float, digits: int = 3) -> str:
    """Format a number with this many significant digits; NaN is an empty cell."""
    if not np.isfinite(value):
        return "" if np.isnan(value) else "∞"
    if value == 0:
        return "0"
    exponent = int(np.floor(np.log10(abs(float(f"{value:.{digits - 1}e}")))))
    if exponent < -5 or exponent > 6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(digits - 1 - exponent, 0)}f}"


def format_measured(value: float, stderr: float) -> str:
    """Format a measurement and its standard error, rounded to the error's leading digits."""
    if not np.isfinite(value):
        return ""
    if not np.isfinite(stderr) or stderr <= 0:
        return format_number(value)
    if stderr < NEGLIGIBLE * abs(value):
        return format_number(value, 4)
    exponent = int(np.floor(np.log10(stderr)))
    places = max((1 if stderr < 3 * 10.0**exponent else 0) - exponent, 0)
    if places > 7:
        return f"{value:.3e} ± {stderr:.0e}"
    return f"{value:.{places}f} ± {stderr:.{places}f}"


def markdown_table(frame: pd.DataFrame) -> str:
    """Render a frame as a Markdown table; a column and its standard errors become one."""
    errors = {}
    for name in map(str, frame.columns):
        bare = name.removesuffix(" stderr")
        shorter = ERRORS_OF.get(name, name.removesuffix("_stderr"))
        for of in (shorter, f"{bare} measured", bare, name.removesuffix(" numerical error")):
            if of != name and of in frame:
                errors[of] = name
                break
    shown = {}
    for name in map(str, frame.columns):
        if name in errors.values():
            continue
        if name in errors:
            pairs = frame[[name, errors[name]]].to_numpy(float)
            shown[name] = [format_measured(*pair) for pair in pairs]
        else:
            shown[name] = [_cell(value) for value in frame[name]]
    header = "| " + " | ".join(name.replace("_", " ") for name in shown) + " |"
    rows = ["| " + " | ".join(row) + " |" for row in zip(*shown.values(), strict=True)]
    return "\n".join([header, "|" + " --- |" * len(shown), *rows])


def fragment(frame: pd.DataFrame, source: Mapping[str, Any], remarks: str = "") -> str:
    """Return a table with the command, version, day and seconds of its `source` below it."""
    made = f"{source['version']}, {str(source['created'])[:10]}, {source['seconds']:.0f} s"
    below = f"*`{source['command']}`: {made}.* {remarks}".strip()
    return f"{markdown_table(frame)}\n\n{below}\n"


def write_fragment(
    folder: Path, name: str, frame: pd.DataFrame, source: Mapping[str, Any], remarks: str = ""
) -> Path:
    """Write `name`.md, which a page includes; see `fragment`."""
    path = folder / f"{name}.md"
    write_atomically(path, fragment(frame, source, remarks).encode())
    return path


def update_rows(path: Path, frame: pd.DataFrame, key: str) -> None:
    """Replace the rows of a Markdown table that have a key of `frame`; add those it lacks."""
    header, line, *rows = [row for row in path.read_text().splitlines() if row.startswith("|")]
    place = [cell.strip() for cell in header.split("|")].index(key)
    new: dict[str, list[str]] = {}
    for row in markdown_table(frame).splitlines()[2:]:
        new.setdefault(row.split("|")[place].strip(), []).append(row)
    kept: list[str] = []
    for row in rows:
        name = row.split("|")[place].strip()
        if name not in new:
            kept.append(row)
        elif new[name]:
            kept += new[name]
            new[name] = []
    added = [row for group in new.values() for row in group]
    write_atomically(path, "\n".join([header, line, *kept, *added, ""]).encode())


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        number = float(value)
        whole = number.is_integer() and abs(number) < 1e7
        return str(int(number)) if whole else format_number(number)
    return str(value).replace("|", r"\|")
