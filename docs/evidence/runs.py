"""Which runs are there? Finished run folders, by the command that made them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from attnlimit.reproduce import Result, load
from attnlimit.reproduce.registry import EXPERIMENTS
from attnlimit.runs import RunFolder
from evidence.cells import spaced
from evidence.demo import found_demos, spent
from evidence.studies import COMMANDS, Study, found_studies

COMMAND = "attnlimit reproduce "
SEED = " --seed 0"


@dataclass(frozen=True)
class Run:
    """A finished run of an experiment of the package."""

    folder: RunFolder

    @cached_property
    def record(self) -> dict[str, Any]:
        """What was run: experiment, settings, version, time."""
        return self.folder.record()

    @cached_property
    def result(self) -> Result:
        """Its curves, table and remarks."""
        experiment = load(self.record["experiment"])
        return Result(experiment, self.record["config"], self.folder.table())

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.result.experiment.name

    @property
    def title(self) -> str:
        """What the experiment shows."""
        return self.result.experiment.title

    @property
    def config(self) -> dict[str, Any]:
        """All settings."""
        return dict(self.record["config"])

    @property
    def curves(self) -> pd.DataFrame:
        """Its rows, with the errors by which they are compared."""
        return self.result.weighed

    @property
    def table(self) -> pd.DataFrame:
        """What the command prints."""
        return self.result.table

    @cached_property
    def asked(self) -> str:
        """The command after `attnlimit reproduce`; seed 0 is not said."""
        return self.result.command.removeprefix(COMMAND).removesuffix(SEED)

    @cached_property
    def seconds(self) -> float:
        """What its shards took, one after the other."""
        return spent(self.folder)

    @property
    def made(self) -> str:
        """Version and day."""
        return f"{self.record['version']}, {self.record['created'][:10]}"

    def remarks(self, pattern: str) -> list[str]:
        """Return its sentences that have a pattern; none where that is empty."""
        said = [one for one in self.result.remarks if pattern and re.search(pattern, one)]
        return [
            re.sub(r"^[a-z]+(?=,? |: )", lambda word: word[0].capitalize(), spaced(one))
            for one in said
        ]

    @property
    def source(self) -> str:
        """The line under a table."""
        return f"*`{typed(self.asked)}`: {self.made}, {self.seconds:.0f} s.*"


Runs = dict[str, Run | Study]


def typed(asked: str) -> str:
    """The whole command of a run: tables ask for experiments without its first words."""
    return asked if asked.startswith(COMMANDS) else COMMAND + asked


def largest(name: str) -> str:
    """How tables ask for an experiment: at the paper's sizes, if it has others."""
    sizes = load(name).config
    return name if sizes(False) == sizes(True) else f"{name} --paper"


def found_runs(roots: list[Path]) -> Runs:
    """Return what was run below some folders and finished, the newest of each command."""
    records = [record for root in roots for record in root.rglob("run.json")]
    finished = [one.parent for one in records if (one.parent / "report.html").exists()]
    runs = [Run(RunFolder(path)) for path in finished]
    known = [run for run in runs if run.record["experiment"] in EXPERIMENTS]
    newest = sorted(known, key=lambda run: run.record["created"])
    demos = found_demos([run.folder for run in runs])
    return {run.asked: run for run in newest} | demos | found_studies(roots)
