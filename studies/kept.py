"""What did a study find? Its tables, printed, and left in a file of which the pages are made.

A study ends with `keep(frame)` or, with several tables, `keep(cosines=frame, plans=frame)`: plain
numbers, errors in columns of their own. docs/evidence/ asks for them by the command that was typed.
They are left in runs/evidence/studies, or below the folder that ATTNLIMIT_EVIDENCE names, with the
picture that `keep_picture(figure)` draws of them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pandas as pd

import attnlimit
from attnlimit.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROJECT = Path(__file__).resolve().parents[1]
EVIDENCE = Path(os.environ.get("ATTNLIMIT_EVIDENCE", PROJECT / "runs" / "evidence"))
STARTED = perf_counter()


def keep(
    table: pd.DataFrame | None = None,
    *,
    command: str = "",
    seconds: float | None = None,
    **tables: pd.DataFrame,
) -> Path:
    """Print the tables, and write them with the command, the version, the day and the seconds.

    A study of several scripts says its command and what all of them took.
    """
    found = tables if table is None else {"table": table, **tables}
    command = command or typed()
    for name, frame in found.items():
        print(f"{name}:" if len(found) > 1 else "", frame.to_string(index=False), sep="\n")
    said = {
        "command": command,
        "title": str(sys.modules["__main__"].__doc__).splitlines()[0],
        "version": attnlimit.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": perf_counter() - STARTED if seconds is None else seconds,
        "tables": {name: frame.to_dict("records") for name, frame in found.items()},
    }
    path = place(command, ".study.json")
    write_atomically(path, json.dumps(said, indent=1).encode())
    return path


def keep_picture(figure: Figure) -> None:
    """Draw a figure beside the tables of the study."""
    path = place(typed(), ".png")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def place(command: str, ending: str) -> Path:
    """The file of a command."""
    words = command.removeprefix("python studies/").replace(".py", "")
    return EVIDENCE / "studies" / (re.sub(r"\W+", "-", words).strip("-") + ending)


def typed() -> str:
    """The command that started this study, from the project's folder."""
    study = Path(sys.argv[0]).resolve().relative_to(PROJECT)
    return shlex.join(["python", study.as_posix(), *sys.argv[1:]])
