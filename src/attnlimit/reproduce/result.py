"""What came of an experiment? Its curves, and the table, remarks and figure made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from attnlimit.files import digest
from attnlimit.picture import FigureSpec
from attnlimit.report.run_page import Shown
from attnlimit.reproduce.compare import agreement, beyond_listed, marked
from attnlimit.reproduce.experiment import Config, Experiment
from attnlimit.reproduce.registry import load
from attnlimit.runs import Executor, ShardsSetAside, execute
from attnlimit.runs.driver import Progress


@dataclass(frozen=True)
class Result:
    """An experiment that was run: `folder` is its run folder, or nothing if none was asked for."""

    experiment: Experiment
    config: Config
    curves: pd.DataFrame
    folder: Path | None = None

    @cached_property
    def weighed(self) -> pd.DataFrame:
        """The curves, with the errors by which predictions and measurements are compared."""
        return self.experiment.weighed(self.config, self.curves)

    @cached_property
    def table(self) -> pd.DataFrame:
        """What is printed: predicted, measured, standard error."""
        return self.experiment.table(self.config, self.weighed)

    @cached_property
    def shown(self) -> pd.DataFrame:
        """The table for people: rows beyond three combined errors are marked."""
        return marked(self.table)

    @cached_property
    def remarks(self) -> list[str]:
        """Sentences under the table: the experiment's, and how far all predictions are off.

        The same z for all experiments, that of `compare.with_z`.
        """
        said = self.experiment.remarks(self.config, self.weighed)
        compared = self.experiment.compared(self.config, self.weighed)
        if compared is None:
            return said
        if not any("combined errors" in sentence for sentence in said):
            said = [*said, agreement(compared)]
        return [*said, beyond_listed(compared)]

    @cached_property
    def figure(self) -> FigureSpec:
        """The picture's description."""
        return self.experiment.figure(self.config, self.weighed)

    @property
    def command(self) -> str:
        """What to type to have it again."""
        file, _, _ = self.experiment.path.rpartition(":")
        own = file.endswith(".py")
        given = {key: value for key, value in self.config.items() if key not in ("seed", "file")}
        changed = {
            size: {key: value for key, value in given.items() if defaults.get(key) != value}
            for size in ("", " --paper")
            for defaults in [json.loads(json.dumps(self.experiment.config(bool(size))))]
        }
        size = min(changed, key=lambda one: len(changed[one]))
        more = [f" --set {quote(f'{k}={json.dumps(v)}')}" for k, v in changed[size].items()]
        name = quote(file) if own else self.experiment.name
        return f"attnlimit reproduce {name}{size}{''.join(more)} --seed {self.config['seed']}"

    def draw(self, folder: Path) -> list[Path]:
        """Write the figure as PNG, PDF and HTML."""
        from attnlimit.report.figures import draw

        return draw(self.figure, folder, self.experiment.name)

    def page(self, record: dict[str, Any]) -> Shown:
        """Return what its page shows; `record` is the run's."""
        title = self.experiment.title
        return Shown(record, title, self.command, self.figure, self.shown, self.remarks)


def run(
    experiment: str | Experiment,
    overrides: Mapping[str, Any] | None = None,
    *,
    paper: bool = False,
    seed: int = 0,
    out: Path | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    capture: str | Path | None = None,
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
    capture : str or Path, optional
        A capture's folder, in place of the model and text of an experiment that reads both.
    """
    chosen = load(experiment) if isinstance(experiment, str) else experiment
    config = chosen.configured(overrides, paper=paper, seed=seed)
    if "weights" in config and "model" in (overrides or {}):
        from attnlimit.reproduce.documents import with_model

        config = with_model(config)
    if capture is not None:
        from attnlimit.reproduce.documents import with_capture

        config = with_capture(chosen, config, capture)
    file, _, _ = chosen.path.rpartition(":")
    if file.endswith(".py"):
        config["file"] = digest(Path(file).read_bytes())  # another text is another experiment
    if out is None:
        with TemporaryDirectory() as place:
            try:
                found = execute(chosen, config, Path(place), executor=executor, progress=progress)
            except ShardsSetAside as error:  # its list of failures goes with the folder
                raise ShardsSetAside(error.what) from None
            return Result(chosen, config, found.table())
    folder = execute(chosen, config, out, executor=executor, progress=progress)
    return Result(chosen, config, folder.table(), folder.path)
