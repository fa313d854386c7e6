"""Which studies and benchmarks were run? Their files, by the command that made them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from attnlimit.reproduce.compare import agreement
from evidence.cells import spaced

BENCHMARKS = "python -m benchmarks "
DEMO = "attnlimit demo"
COMMANDS = ("python ", "make ", DEMO)
"""How the commands begin that are not `attnlimit reproduce`."""


@dataclass(frozen=True)
class Study:
    """What a study left (studies/kept.py), or one suite of the benchmarks."""

    record: dict[str, Any]

    @property
    def asked(self) -> str:
        """The command."""
        return str(self.record["command"])

    name = asked

    @property
    def title(self) -> str:
        """Its question."""
        return str(self.record["title"])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """What it found, numbers as they were."""
        return {name: pd.DataFrame(rows) for name, rows in self.record["tables"].items()}

    @property
    def table(self) -> pd.DataFrame:
        """Its only table."""
        (only,) = self.tables.values()
        return only

    @property
    def seconds(self) -> float:
        """What it took."""
        return float(self.record["seconds"])

    @property
    def made(self) -> str:
        """Version and day."""
        return f"{self.record['version']}, {self.record['created'][:10]}"

    def remarks(self, pattern: str) -> list[str]:
        """How far its only table's predictions are from measurements, if the pattern asks."""
        said = [agreement(self.table)] if pattern else []
        return [spaced(one) for one in said if re.search(pattern, one)]

    @property
    def source(self) -> str:
        """The line under a table."""
        return f"*`{self.asked}`: {self.made}, {self.seconds:.0f} s.*"


def found_studies(roots: list[Path]) -> dict[str, Study]:
    """Return the studies and suites below some folders, the newest of each command, by command."""
    left = [json.loads(one.read_text()) for root in roots for one in root.rglob("*.study.json")]
    for path in (one for root in roots for one in root.rglob("bench.json")):
        suites = json.loads(path.read_text()).get("suites", {})
        left += [suite | {"command": BENCHMARKS + name} for name, suite in suites.items()]
    found = map(Study, sorted(left, key=lambda one: one["created"]))
    return {one.asked: one for one in found}
