"""Where are a question's captures kept? In a folder a passage of text, or in a user's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput
from attnlimit.files import digest
from attnlimit.models import Capture, open_capture
from attnlimit.models.arrays import read_arrays
from attnlimit.models.load.load import file_hash
from attnlimit.models.store.folder import Folder, as_written, folder_at, is_address
from attnlimit.models.store.manifest import NAME as MANIFEST
from attnlimit.models.store.manifest import Manifest

MOST_PARTS = 1 << 16


@dataclass(frozen=True)
class Stored:
    """Captures that are files: a capture's folder, or three of numpy's.

    Workers open them anywhere, so paths are whole; a hash of hashes says whether they are the same.
    """

    paths: tuple[str, ...]
    sha256: str
    causal: bool = True  # of own tensors; a folder says it itself

    @classmethod
    def at(cls, paths: Sequence[str | Path], causal: bool = True) -> Stored:
        """Return what is stored at `paths`, with its hash as it is now."""
        where = tuple(as_written(path) for path in paths)
        return cls(where, _digest(where), causal)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Stored:
        """Return it from the JSON of a configuration."""
        return cls(**{**given, "paths": tuple(given["paths"])})

    def captures(self) -> tuple[Capture, ...]:
        """Open every passage; raise if they are not what they were."""
        if not is_address(self.paths[0]):  # which is asked once in a process
            self.check()
        return _opened(self)

    def check(self) -> None:
        """Raise if the files have changed."""
        if _digest(self.paths) != self.sha256:
            raise BadInput(
                f"The captures in {self.paths[0]} have changed since they were asked about; "
                "begin a new run with them."
            )


def part_folder(folder: Path, part: int) -> Path:
    """Folder of one passage: the first has the capture's own, others are in it."""
    return folder if part == 0 else folder / _part(part)


def _part(part: int | str) -> str:
    return f"part-{part}"


@lru_cache(maxsize=2)
def _opened(stored: Stored) -> tuple[Capture, ...]:
    stored.check()
    if not _is_folder(stored.paths):
        return (read_arrays(stored.paths, causal=stored.causal),)
    return tuple(open_capture(folder.name) for folder in _folders(stored.paths[0]))


def _is_folder(paths: tuple[str, ...]) -> bool:
    return len(paths) == 1 and not paths[0].endswith(".npy")


def _folders(path: str) -> list[Folder]:
    """Folders of every passage of a capture, the first of which says how many there are."""
    first = folder_at(path)
    parts = Manifest.read(first.manifest()).source.get("parts", 1)
    if type(parts) is not int or not 1 <= parts <= MOST_PARTS:
        raise BadInput(f"The capture in {path} says that it has {str(parts)[:40]} parts.")
    return [first, *(first.inside(_part(part)) for part in range(1, parts))]


def _digest(paths: tuple[str, ...]) -> str:
    """SHA-256 of own files, or of a folder's manifests, which have those of all else."""
    files = list(map(Path, paths))
    if is_address(paths[0]):
        files = [folder.manifest() for folder in _folders(paths[0])]
    elif _is_folder(paths):
        files = [files[0] / MANIFEST, *sorted(files[0].glob(f"{_part('*')}/{MANIFEST}"))]
    return digest("".join(file_hash(file) for file in files if file.is_file()).encode())


def told(capture: Capture, path: str) -> dict[str, Any]:
    """What a capture says of its passage of text: text, source, licence, part and ids."""
    known = capture.source.get("passage")
    names = {"text": str, "source": str, "licence": str, "part": int, "ids": list}
    if known is None:
        ids = list(range(len(capture)))
        return {"text": path, "source": path, "licence": "your own", "part": 0, "ids": ids}
    if not isinstance(known, dict) or {k: type(v) for k, v in known.items()} != names:
        raise BadInput(f"The capture in {path} does not say what text it is of; capture it again.")
    if len(known["ids"]) != len(capture) or not all(type(one) is int for one in known["ids"]):
        raise BadInput(f"The capture in {path} has other tokens than its text; capture it again.")
    return known
