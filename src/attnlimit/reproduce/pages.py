"""What does a person see of a run? The page of its kind, or one sentence on why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.report.compare_page import compare_runs, compare_surveys
from attnlimit.report.model_page import model_page
from attnlimit.report.page import write_page
from attnlimit.report.run_page import Shown, run_page
from attnlimit.reproduce import model
from attnlimit.reproduce.registry import EXPERIMENTS, load
from attnlimit.reproduce.result import Result
from attnlimit.runs import RunFolder

MODEL = model.EXPERIMENT.name


def write_report(folder: RunFolder, target: Path | None = None) -> Path:
    """Build the page of a finished run at `target`, `report.html` in its folder by default."""
    path = folder.path / "report.html" if target is None else target
    with _readable(folder) as record:
        if record["experiment"] == MODEL:
            page = model_page(record, model.survey_of(folder), path.parent)
        else:
            page = run_page(_shown(folder, record))
    return write_page(path, page)


def write_result(result: Result) -> tuple[Path, list[Path]]:
    """Write the figure and the page of a result in its run folder; return that and the files."""
    assert result.folder is not None
    page = run_page(result.page(RunFolder(result.folder).record()))
    figures = result.draw(result.folder)
    return result.folder, [*figures, write_page(result.folder / "report.html", page)]


def write_comparison(first: RunFolder, second: RunFolder, target: Path) -> Path:
    """Write the page that compares two finished runs of one experiment."""
    names = [folder.record()["experiment"] for folder in (first, second)]
    if names[0] != names[1]:
        raise BadInput(
            f"Only runs of one kind can be compared; these are {names[0]!r} and {names[1]!r}."
        )
    with _readable(first) as one, _readable(second) as two:
        if names[0] == MODEL:
            surveys = model.survey_of(first), model.survey_of(second)
            page = compare_surveys((one, two), surveys, (first.path.name, second.path.name))
        else:
            shown = _shown(first, one), _shown(second, two)
            page = compare_runs(shown, (first.path.name, second.path.name))
    return write_page(target, page)


def table_of(folder: RunFolder) -> pd.DataFrame:
    """Return the table that a finished run prints; all it has if its kind is not known."""
    if folder.record()["experiment"] not in {MODEL, *EXPERIMENTS}:
        return folder.table()
    with _readable(folder) as record:
        if record["experiment"] == MODEL:
            return model.survey_of(folder).layers()
        return _shown(folder, record).table


def _shown(folder: RunFolder, record: dict[str, Any]) -> Shown:
    name, config = record["experiment"], record["config"]
    if name not in EXPERIMENTS:
        raise BadInput(
            f"{folder.path} is a run of {name!r}, which this version does not know; if it is your "
            "own, give its file to `attnlimit reproduce` again."
        )
    experiment = load(name)
    missing = [key for key in experiment.config(False) if key not in config]
    if missing:
        raise BadInput(
            f"{folder.path} was made by attnlimit {record.get('version', 'of unknown version')} "
            f"and has no setting {missing[0]!r}; run `attnlimit reproduce {name}` again."
        )
    return Result(experiment, config, folder.table(), folder.path).page(record)


@contextmanager
def _readable(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """Give a run's record to the `with` block that shows it.

    The run may be anyone's, and its numbers can trip anything: that becomes one sentence that says
    what to do, with the cause chained.
    """
    record = folder.record()
    name = record["experiment"]
    command = "attnlimit measure" if name == MODEL else f"attnlimit reproduce {name}"
    try:
        yield record
    except AttnlimitError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0][:200].rstrip(".: ")
        raise BadInput(
            f"{folder.path} does not hold what `{command}` writes ({reason}); run it again."
        ) from error
