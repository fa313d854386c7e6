"""Atomic writes, and checked reading of JSON and parquet files that may be damaged."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlimit.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd

PARTIAL = ".partial"
"""End of temporary names."""
# Far beyond what the package writes: bytes of JSON, and unpacked bytes and numbers of a table.
MOST_JSON = 1 << 27
MOST_TABLE = 1 << 31
MOST_VALUES = 10**8


class Damaged(BadInput):
    """A file does not hold what was written to it."""


def write_atomically(path: Path, content: bytes | Iterable[bytes], *, durable: bool = True) -> None:
    """Write `content` under a temporary name, flush it to the disk, and rename it to `path`.

    Pieces of an iterable are written one by one. Without `durable` a power cut may lose the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with temporary.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # on a full disk every byte counts
        raise
    if durable and os.name != "nt":  # the rename itself survives a power cut, too
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def digest(content: bytes) -> str:
    """SHA-256 of `content`, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


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
    except FileNotFoundError:
        raise Damaged(f"There is no file {path}; give the path of an existing one.") from None
    except RecursionError:
        raise Damaged(f"{path} is damaged: it is nested too deeply; write it again.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Damaged(f"{path} is damaged: {reason}; write it again.") from None
    return content


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Return a table as the bytes of a parquet file."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, write_page_checksum=True)
    return buffer.getvalue()


def read_table(content: bytes, name: str) -> pd.DataFrame:
    """Read a parquet file; a damaged one, or one that unpacks to too much, is refused."""
    import pyarrow.parquet

    try:
        # Row groups only: reading a damaged column's metadata ends the process (pyarrow 26).
        metadata = pyarrow.parquet.read_metadata(io.BytesIO(content))
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        values = sum(abs(group.num_rows) for group in groups) * max(1, metadata.num_columns)
        size = sum(abs(group.total_byte_size) for group in groups)
        if max(values, metadata.num_rows) > MOST_VALUES or size > MOST_TABLE:
            raise ValueError(f"it unpacks to {values:.3g} values")
        read = pyarrow.parquet.read_table(io.BytesIO(content), page_checksum_verification=True)
        table: pd.DataFrame = read.to_pandas()
        table.columns = [str(column) for column in table.columns]
        "".join(table.columns).encode()  # half a character is damage
    except MemoryError:
        raise
    except Exception as error:  # a damaged table can trip the reader anywhere
        reason = str(error).strip().split("\n")[0].rstrip(".")[:200]
        raise Damaged(
            f"{name} is damaged: {reason or type(error).__name__}; write it again."
        ) from None
    return table
