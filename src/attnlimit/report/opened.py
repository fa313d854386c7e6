"""Can this version show a run? What a finished run holds, or one sentence on what it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd

from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.reproduce import EXPERIMENTS
from attnlimit.runs import RunFolder


@contextmanager
def opened(folder: RunFolder) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Give a finished run's record and curves to the `with` block that shows them.

    A run made by another version may lack a setting, a column or a number that is asked for
    there: that is the run's age and no bug, and becomes one sentence that says what to do. So does
    whatever else goes wrong with it; the cause is chained.
    """
    record = folder.record()
    name = record["experiment"]
    if name not in EXPERIMENTS:
        raise BadInput(f"{folder.path} is a run of {name!r}, which this version does not know.")
    curves = folder.table()
    command = "attnlimit measure" if name == "model" else f"attnlimit reproduce {name}"
    try:
        yield record, curves
    except AttnlimitError:
        raise
    except Exception as error:  # the run may be anyone's: its numbers can trip anything
        missing = _missing(error)
        if missing is None or missing in record["config"] or missing in curves.columns:
            reason = f"{type(error).__name__}: {error}".split("\n")[0][:200].rstrip(".: ")
            raise BadInput(
                f"{folder.path} does not hold what `{command}` writes ({reason}); run it again."
            ) from error
        raise BadInput(
            f"{folder.path} was made by attnlimit {record.get('version', 'of unknown version')} "
            f"and has no {missing!r}, which this version shows; run `{command}` again."
        ) from error


def _missing(error: Exception) -> str | None:
    """Name what was asked for in vain; None for attributes of anything but a table."""
    if not isinstance(error, (KeyError, AttributeError)):
        return None
    if isinstance(error, AttributeError):
        found = re.fullmatch(r"'(?:DataFrame|Series)' object has no attribute '(\w+)'", str(error))
        return found[1] if found else None
    return str(error.args[0]) if error.args else None
