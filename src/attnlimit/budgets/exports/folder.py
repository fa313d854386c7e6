"""How is an export written? A folder with the other tool's own files, and one that explains them.

`export.json` says what the files are made from, how the other tool takes them, and what is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from attnlimit import checks
from attnlimit.budgets.exports.needs import Needs
from attnlimit.errors import BadInput
from attnlimit.files import read_json, write_atomically
from attnlimit.result import Result

ABOUT = "export.json"
SCHEMA = "attnlimit.export/1"


@dataclass(frozen=True)
class Choices:
    """What the other tool keeps besides: first and recent tokens; and the size of its pages."""

    sinks: int = 4
    recent: int = 64
    page_size: int = 16

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.recent, "recent", smallest=0)
        checks.count(self.page_size, "page_size")


@dataclass(frozen=True, eq=False)
class Export(Result):
    """Files for another tool, not yet written."""

    to: str
    model: str
    files: dict[str, bytes]
    use: str  # how the other tool takes them
    lost: str  # one sentence
    numbers: dict[str, Any]  # that the other tool is to be given beside the files
    table: pd.DataFrame  # what is exported, layer by layer

    def to_frame(self) -> pd.DataFrame:
        """One row for each layer, or for each setting."""
        return self.table

    def headline(self) -> str:
        """Which tool, and what is lost."""
        return f"{self.to}: {self.use}\nlost: {self.lost}"

    def about(self) -> dict[str, Any]:
        """Return the content of `export.json`."""
        return {
            "schema": SCHEMA,
            "to": self.to,
            "model": self.model,
            "files": sorted(self.files),
            **self.numbers,
            "use": self.use,
            "lost": self.lost,
        }

    def write(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the files; a folder that has something in it is refused, unless with `force`."""
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise BadInput(f"{target} is a file; give a folder.")
        if target.is_dir() and any(target.iterdir()) and not force:
            raise BadInput(f"{target} is not empty; give another, or --force to write there.")
        for name, content in self.files.items():
            write_atomically(target / name, content)
        write_atomically(target / ABOUT, as_json(self.about()))
        return target


class Format(NamedTuple):
    """A way to write a plan for another tool, and to check that what is there can be read."""

    make: Callable[[Needs, Choices], Export]
    check: Callable[[Path], Any]  # what the other tool would read; BadInput if it could not


def as_json(content: Any) -> bytes:
    """Content as a JSON file."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that is an object."""
    content = read_json(path)
    must(isinstance(content, dict), path, "an object")
    return dict(content)


def must(fine: bool, path: Path, expected: str) -> None:
    """Raise unless a file has what its reader expects."""
    if not fine:
        raise BadInput(f"{path} cannot be read by the tool it is for: it must be {expected}.")


def is_count(value: Any) -> bool:
    """Whether a value from JSON is a whole number that is not negative."""
    return type(value) is int and value >= 0
