"""How are files written whole or not at all, and read though they may be damaged?"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput

PARTIAL = ".partial"  # how temporary names end
MOST_JSON = 1 << 27
"""Bytes of JSON: far beyond what the package writes."""


class Damaged(BadInput):
    """A file does not hold what was written to it."""


def write_atomically(path: Path, content: bytes | Iterable[bytes], *, durable: bool = True) -> None:
    """Write `content` under a temporary name, flush it to the disk, and rename it to `path`.

    Content in pieces is written piece by piece, as they are made.

    Without `durable` the system flushes it when it likes: a power cut may lose the file.
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
        raise Damaged(f"There is no file {path}.") from None
    except RecursionError:
        raise Damaged(f"{path} is damaged: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Damaged(f"{path} is damaged: {reason}.") from None
    return content


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
