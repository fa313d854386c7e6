"""Results of experiments: tables, remarks, figures and pages of finished runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.files import digest
from attnlimit.picture import FigureSpec
from attnlimit.report.page import RunContent, run_page, write_page
from attnlimit.reproduce.compare import agreement, beyond_listed, marked
from attnlimit.reproduce.experiment import EXPERIMENTS, Config, Experiment, execute, load
from attnlimit.runs import Progress, RunFolder, ShardsFailed

RECORDED = ("seed", "file", "weights", "weights_note", "weights_licence", "text_licence")
"""Entries of a configuration that follow from others."""
CAPTURED = ("capture", "model", "text", "tokens")
"""Entries that `--capture` sets."""


@dataclass(frozen=True)
class Result:
    """An experiment that was run; `folder` is its run folder, if one was kept."""

    experiment: Experiment
    config: Config
    curves: pd.DataFrame
    folder: Path | None = None

    @property
    def title(self) -> str:
        """The experiment's title for these settings."""
        return self.experiment.heading(self.config)

    @cached_property
    def with_errors(self) -> pd.DataFrame:
        """The curves, with the errors by which predictions and measurements are compared."""
        return self.experiment.with_errors(self.config, self.curves)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table that is printed."""
        return self.experiment.table(self.config, self.with_errors)

    @cached_property
    def shown(self) -> pd.DataFrame:
        """The table with marks at rows beyond three combined errors."""
        return marked(self.table)

    @cached_property
    def remarks(self) -> list[str]:
        """Sentences under the table: the experiment's, and the distances of all predictions."""
        sentences = self.experiment.remarks(self.config, self.with_errors)
        compared = self.experiment.compared(self.config, self.with_errors)
        if compared is None:
            return sentences
        if not any("combined errors" in sentence for sentence in sentences):
            sentences = [*sentences, agreement(compared)]
        return [*sentences, beyond_listed(compared)]

    @cached_property
    def finding(self) -> str:
        """The result in one sentence."""
        return self.experiment.finding(self.config, self.with_errors)

    @cached_property
    def figure(self) -> FigureSpec:
        """Description of the figure."""
        return self.experiment.figure(self.config, self.with_errors)

    @property
    def command(self) -> str:
        """The command that runs it again."""
        stored = self.config.get("capture")
        known = RECORDED if stored is None else (*RECORDED, *CAPTURED)
        given = {key: value for key, value in self.config.items() if key not in known}
        changed = {}
        for size in ("", " --paper"):
            defaults = json.loads(json.dumps(self.experiment.config(bool(size))))
            changed[size] = {k: v for k, v in given.items() if defaults.get(k) != v}
        size = min(changed, key=lambda size: len(changed[size]))
        more = [f" --set {quote(f'{k}={json.dumps(v)}')}" for k, v in changed[size].items()]
        more += [] if stored is None else [f" --capture {quote(stored['folder'])}"]
        name, file = self.experiment.name, _file(self.experiment)
        if file is not None:
            here = Path.cwd()
            name = quote(str(file.relative_to(here) if file.is_relative_to(here) else file))
        return f"attnlimit reproduce {name}{size}{''.join(more)} --seed {self.config['seed']}"

    def draw(self, folder: Path) -> list[Path]:
        """Write the figure as PNG, PDF and HTML."""
        from attnlimit.report.figures import draw

        return draw(self.figure, folder, self.experiment.name)

    def content(self, record: dict[str, Any]) -> RunContent:
        """Return the content of its page; `record` is the run's."""
        about = record, self.title, self.finding, self.command
        return RunContent(*about, self.figure, self.shown, self.remarks)


def _file(experiment: Experiment) -> Path | None:
    """Return the user's file of an experiment, if it has one."""
    module = experiment.path.rpartition(":")[0]
    return Path(module) if module.endswith(".py") else None


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
    """Run an experiment, with some of its settings replaced.

    Parameters
    ----------
    experiment : str or Experiment
        A name of `EXPERIMENTS`, the path of a file that has an `EXPERIMENT`, or one.
    overrides : mapping, optional
        Settings in place of the default ones, or of the paper's if `paper`.
    seed : int
        Seed of all random numbers.
    out : Path, optional
        Folder of the run folder, which the same call resumes or reads again; none is kept without.
    executor : Executor, optional
        Computes the shards; this process by default.
    progress : callable, optional
        Called with a `Status` after every shard.
    capture : str or Path, optional
        A capture's folder, in place of the model and text of an experiment that reads both.
    """
    chosen = load(experiment) if isinstance(experiment, str) else experiment
    config = chosen.configured(overrides, paper=paper, seed=seed)
    if capture is not None or ("weights" in config and "model" in (overrides or {})):
        from attnlimit.reproduce import documents

        config = (
            documents.with_model(config)
            if capture is None
            else documents.with_capture(chosen, config, capture)
        )
    file = _file(chosen)
    if file is not None:
        config["file"] = digest(file.read_bytes())  # another text is another experiment
    how: dict[str, Any] = {"executor": executor, "progress": progress}
    if out is not None:
        folder = execute(chosen, config, out, **how)
        return Result(chosen, config, folder.table(), folder.path)
    with TemporaryDirectory() as place:
        try:
            return Result(chosen, config, execute(chosen, config, Path(place), **how).table())
        except ShardsFailed as error:  # its list of failures goes with the folder
            raise ShardsFailed(error.summary) from None


def write_result(result: Result) -> tuple[Path, list[Path]]:
    """Write the figure and the page of a result in its run folder; return that and the files."""
    assert result.folder is not None
    page = run_page(result.content(RunFolder(result.folder).record()))
    figures = result.draw(result.folder)
    return result.folder, [*figures, write_page(result.folder / "report.html", page)]


def write_report(folder: RunFolder, target: Path | None = None) -> Path:
    """Write the page of a finished run at `target`, `report.html` in its folder by default."""
    path = folder.path / "report.html" if target is None else target
    with _readable(folder) as result:
        page = run_page(result.content(folder.record()))
    return write_page(path, page)


def table_of(folder: RunFolder) -> pd.DataFrame:
    """Return the table that a finished run prints; its curves if its kind is not known."""
    if folder.record()["experiment"] not in EXPERIMENTS:
        return folder.table()
    with _readable(folder) as result:
        return result.shown


def side_by_side(first: RunFolder, second: RunFolder) -> pd.DataFrame:
    """Return the tables of two runs of one experiment, beside each other where their rows match.

    Columns that agree identify the rows; numbers are followed by their difference, the second minus
    the first. Tables whose rows do not match are below each other.
    """
    names = [folder.record()["experiment"] for folder in (first, second)]
    if names[0] != names[1]:
        raise BadInput(f"These are runs of {names[0]!r} and {names[1]!r}; give two of one kind.")
    before, after = table_of(first), table_of(second)
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        runs = {folder.path.name: frame for folder, frame in ((first, before), (second, after))}
        return pd.concat(runs, names=["run"]).reset_index("run")
    same = [name for name in before if before[name].equals(after[name])]
    shown = {name: before[name] for name in same}
    for name in (column for column in before if column not in same):
        values = [frame[name].map(_number) for frame in (before, after)]
        shown |= {f"{name}, first": before[name], f"{name}, second": after[name]}
        if not any(column.isna().all() for column in values):
            shown[f"{name}, difference"] = values[1] - values[0]
    return pd.DataFrame(shown)


def _number(cell: Any) -> float:
    """Read a cell as a number, the first of "0.5 ± 0.1"; NaN if it is none."""
    try:
        return float(str(cell).partition("±")[0].strip(" !%"))
    except ValueError:
        return float("nan")


@contextmanager
def _readable(folder: RunFolder) -> Iterator[Result]:
    """Give the result of a finished run to a `with` block that shows it.

    The run may be anyone's, and its numbers can trip anything: that becomes one sentence, with the
    cause chained.
    """
    record = folder.record()
    name, config = record["experiment"], record["config"]
    if name not in EXPERIMENTS:
        raise BadInput(
            f"{folder.path} is a run of {name!r}, which this version does not know; if it is your "
            "own, give its file to `attnlimit reproduce` again."
        )
    experiment = load(name)
    for key in experiment.config(False):
        if key not in config:
            raise BadInput(
                f"{folder.path} was made by attnlimit {record.get('version') or 'unknown version'} "
                f"and has no setting {key!r}; run `attnlimit reproduce {name}` again."
            )
    try:
        yield Result(experiment, config, folder.table(), folder.path)
    except AttnlimitError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0][:200].rstrip(".: ")
        raise BadInput(
            f"{folder.path} does not hold what `attnlimit reproduce {name}` writes ({reason}); run "
            "it again."
        ) from error
