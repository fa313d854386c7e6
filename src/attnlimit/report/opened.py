"""Can this version show a run? What a finished run holds, or one sentence on what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pyarrow

from attnlimit.errors import BadInput
from attnlimit.experiments import EXPERIMENTS
from attnlimit.runs import RunFolder


@contextmanager
def opened(folder: RunFolder) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Give a finished run's record and curves to the `with` block that shows them.

    A run made by another version may lack a setting, a column or a number that is asked for
    there: that is the run's age and no bug, and becomes one sentence that says what to do.
    """
    record = folder.record()
    name = record["experiment"]
    if name not in EXPERIMENTS:
        raise BadInput(f"{folder.path} is a run of {name!r}, which this version does not know.")
    try:
        curves = folder.curves()
    except (OSError, pyarrow.ArrowException):
        raise BadInput(
            f"{folder.path / 'curves.parquet'} is damaged; remove it and run the command again, "
            "which keeps the shards that are done."
        ) from None
    try:
        yield record, curves
    except (KeyError, AttributeError) as error:
        missing = _missing(error)
        if missing is None or missing in record["config"] or missing in curves.columns:
            raise
        command = "attnlimit measure" if name == "model" else f"attnlimit reproduce {name}"
        raise BadInput(
            f"{folder.path} was made by attnlimit {record.get('version', 'of unknown version')} "
            f"and has no {missing!r}, which this version shows; run `{command}` again."
        ) from error


def _missing(error: Exception) -> str | None:
    """Name what was asked for in vain; None for attributes of anything but a table."""
    if isinstance(error, AttributeError):
        table = isinstance(error.obj, (pd.DataFrame, pd.Series))
        return str(error.name) if table else None
    return str(error.args[0]) if error.args else None
