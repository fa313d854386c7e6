"""How does a file get written so that a crash leaves the old one or the new one, never half?"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

TEMPORARY_SUFFIX = ".partial"


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write `content` under a temporary name, flush it to the disk, and rename it to `path`.

    Without `durable` the system flushes it when it likes: a power cut may lose the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk every byte counts
        raise
    if durable:
        _flush_directory(path.parent)


def _flush_directory(directory: Path) -> None:
    """Make the rename itself survive a power cut, where the system has a way to say so."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(content: bytes) -> str:
    """SHA-256 of `content`, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
