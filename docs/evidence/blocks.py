"""How does a table get into a page? Between two comments that name the function that makes it.

A page says `<!-- table: NAME -->`, later `<!-- end -->`; or in a line `<!-- value: NAME -->`,
`<!-- end -->`. What stands between them is replaced by what the function of that name makes of the
run that it asks for; where there is no such run it stays.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

import attnlimit
from evidence.runs import Runs

BLOCK = re.compile(
    r"<!-- (?P<kind>table|value): (?P<name>[\w-]+) -->(?P<body>.*?)<!-- end -->", re.S
)
WIDTH = 116
EVERY = "every run"
"""Before or in place of commands: the function takes all runs that there are, and the table as it
was. Commands are then those that it would like to be run."""


Make = Callable[..., Any]


@dataclass(frozen=True)
class Maker:
    """A function that makes a block of the runs of some commands, or of none."""

    kind: str
    make: Make
    commands: tuple[str, ...]
    says: str = ""

    def missing(self, runs: Runs) -> list[str]:
        """Commands whose run is not there; none where the table takes what there is."""
        return [] if EVERY in self.commands else [one for one in self.commands if one not in runs]

    def text(self, runs: Runs, body: str = "") -> str:
        """What stands between the two comments, where `body` did."""
        if EVERY in self.commands:
            return f"\n{markdown(self.make(runs, frame_of(body)))}\n\n"
        given = [runs[one] for one in self.commands]
        found = self.make(*given)
        if self.kind == "value":
            return str(found)
        if not given:
            return f"\n{markdown(found)}\n\n*Computed by attnlimit {attnlimit.__version__}.*\n"
        said = [wrapped(" ".join([run.source, *run.remarks(self.says)])) for run in given]
        return "\n" + "\n\n".join([markdown(found), *said]) + "\n"


MAKERS: dict[str, Maker] = {}


def table(*commands: str, says: str = "") -> Callable[[Make], Make]:
    """Make the table named like the function, of the runs of these commands.

    `says` is a pattern: those of the run's own remarks that have it stand below the table.
    """
    return _listed("table", commands, says)


def value(*commands: str) -> Callable[[Make], Make]:
    """Make some words in a line, named like the function, of the runs of these commands."""
    return _listed("value", commands)


def _listed(kind: str, commands: tuple[str, ...], says: str = "") -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        MAKERS[make.__name__.replace("_", "-")] = Maker(kind, make, commands, says)
        return make

    return keep


def rewritten(page: str, runs: Runs) -> tuple[str, list[str]]:
    """Return a page with its blocks made anew, and what those that stay as they are wait for."""
    stayed: list[str] = []

    def renewed(block: re.Match[str]) -> str:
        maker = MAKERS[block["name"]]
        if missing := maker.missing(runs):
            stayed.append(f"{block['name']} waits for {', '.join(missing)}")
            return block[0]
        return (
            f"<!-- {maker.kind}: {block['name']} -->{maker.text(runs, block['body'])}<!-- end -->"
        )

    return BLOCK.sub(renewed, page), stayed


def markdown(frame: pd.DataFrame) -> str:
    """Write a table; its cells are text already, or whole numbers."""
    rows = [list(frame.columns), ["---"] * frame.shape[1], *frame.to_numpy(object).tolist()]
    return "\n".join(f"| {' | '.join(str(cell).strip() for cell in row)} |" for row in rows)


def frame_of(body: str) -> pd.DataFrame:
    """Read a table as it stands in a page, cells as text; an empty one where there is none."""
    lines = [line for line in body.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines] or [
        [],
        [],
    ]
    return pd.DataFrame(rows, columns=head)


def wrapped(sentence: str) -> str:
    """Break a line where it is too long."""
    return textwrap.fill(sentence, WIDTH, break_on_hyphens=False, break_long_words=False)
