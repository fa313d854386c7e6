"""What came of an experiment? Its curves, and the table, remarks and figure made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from attnlimit.report.spec import FigureSpec
from attnlimit.reproduce.experiment import Config, Experiment
from attnlimit.reproduce.registry import load
from attnlimit.runs import Executor, execute
from attnlimit.runs.status import Progress


@dataclass(frozen=True)
class Result:
    """An experiment that was run: `folder` is its run folder, or nothing if none was asked for."""

    experiment: Experiment
    config: Config
    curves: pd.DataFrame
    folder: Path | None = None

    @cached_property
    def table(self) -> pd.DataFrame:
        """What is printed: predicted, measured, standard error."""
        return self.experiment.table(self.config, self.curves)

    @cached_property
    def remarks(self) -> list[str]:
        """Sentences to be printed under the table."""
        return self.experiment.remarks(self.config, self.curves)

    @cached_property
    def figure(self) -> FigureSpec:
        """The picture's description."""
        return self.experiment.figure(self.config, self.curves)

    def draw(self, folder: Path) -> list[Path]:
        """Write the figure as PNG, PDF and HTML."""
        from attnlimit.report.figures import draw

        return draw(self.figure, folder, self.experiment.name)


def run(
    experiment: str | Experiment,
    overrides: Mapping[str, Any] | None = None,
    *,
    paper: bool = False,
    seed: int = 0,
    out: Path | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run an experiment, by name, by file or as it is, with some of its settings replaced.

    Parameters
    ----------
    experiment : str or Experiment
        A name of `EXPERIMENTS`, the path of a file that has an `EXPERIMENT`, or one.
    overrides : mapping, optional
        Settings to use instead of the default ones, or of the paper's if `paper`.
    seed : int
        Where all random numbers come from.
    out : Path, optional
        Where the run folder goes, which the same call resumes or reads again; without it none
        is kept.
    executor : Executor, optional
        Who computes the shards; this process by default.
    progress : callable, optional
        Told how far the run is.
    """
    chosen = load(experiment) if isinstance(experiment, str) else experiment
    config = chosen.configured(overrides, paper=paper, seed=seed)
    if out is None:
        with TemporaryDirectory() as place:
            found = execute(chosen, config, Path(place), executor=executor, progress=progress)
            return Result(chosen, config, found.table())
    folder = execute(chosen, config, out, executor=executor, progress=progress)
    return Result(chosen, config, folder.table(), folder.path)
