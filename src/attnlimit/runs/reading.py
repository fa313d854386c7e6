"""Can what a run folder holds be trusted? It may be damaged, or made by someone else."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet

from attnlimit.errors import BadInput

MOST_JSON = 1 << 27
MOST_TABLE = 1 << 31
MOST_VALUES = 10**8
"""Bytes of JSON, bytes of a table and numbers in it, unpacked: far beyond what a run writes."""

# What run.json must say, and may say.
RECORD: dict[str, type | tuple[type, ...]] = {"experiment": str, "key": str, "config": dict}
OPTIONAL: dict[str, type | tuple[type, ...]] = {
    "weights": (str, type(None)),
    "version": str,
    "created": str,
    "versions": dict,
}


class Damaged(BadInput):
    """A file of a run folder does not hold what was written to it."""


def read_bytes(path: Path, most: int) -> bytes:
    """Read a plain file of at most `most` bytes; OSError and ValueError say why not."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most >> 20} MB")
    return content


def read_json(path: Path) -> Any:
    """Read JSON that can be written again: no half characters, no endless nesting, no NaN."""
    try:
        content = json.loads(read_bytes(path, MOST_JSON), parse_constant=_no_constant)
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise Damaged(f"{path} is damaged: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Damaged(f"{path} is damaged: {reason}.") from None
    return content


def read_record(path: Path) -> dict[str, Any]:
    """Read a run.json and check what it has to say."""
    content = read_json(path)
    if not isinstance(content, dict) or not set(RECORD) <= set(content):
        raise Damaged(f"{path} is damaged: it has no {', '.join(RECORD)}.")
    for name, kind in (RECORD | OPTIONAL).items():
        if name in content and not isinstance(content[name], kind):
            found = type(content[name]).__name__
            raise Damaged(f"{path} is damaged: its {name} is of type {found}.")
    return content


def read_table(content: bytes, name: str) -> pd.DataFrame:
    """Read a parquet file; one that would unpack to more than a run writes is refused."""
    try:
        # Row groups only: asking pyarrow 26 for a damaged column's metadata ends the process.
        said = pyarrow.parquet.read_metadata(io.BytesIO(content))
        groups = [said.row_group(k) for k in range(said.num_row_groups)]
        values = sum(abs(group.num_rows) for group in groups) * max(1, said.num_columns)
        size = sum(abs(group.total_byte_size) for group in groups)
        if max(values, said.num_rows) > MOST_VALUES or size > MOST_TABLE:
            raise ValueError(f"it unpacks to {values:.3g} values")
        table = pd.read_parquet(io.BytesIO(content), page_checksum_verification=True)
        table.columns = [_text(column) for column in table.columns]
    except MemoryError:
        raise
    except Exception as error:  # a damaged table can trip the reader anywhere
        reason = str(error).strip().split("\n")[0].rstrip(".")[:200]
        raise Damaged(f"{name} is damaged: {reason or type(error).__name__}.") from None
    return table


def _text(name: object) -> str:
    text = str(name)
    text.encode()
    return text


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
