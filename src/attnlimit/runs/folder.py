"""What does a run leave on the disk? A folder keyed by its configuration, safe against crashes."""

from __future__ import annotations

import io
import json
import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import torch
from filelock import FileLock, Timeout

import attnlimit
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.runs.files import TEMPORARY_SUFFIX, digest, write_atomically

KEY_LENGTH = 12


class FolderBusy(AttnlimitError):
    """Another process is writing this run folder."""


def run_key(name: str, config: dict[str, Any], weights: str | None = None) -> str:
    """Hash of everything a result depends on: experiment, configuration, package and weights."""
    identity = {
        "experiment": name,
        "config": config,
        "version": attnlimit.__version__,
        "weights": weights,
    }
    try:
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"The configuration of {name} must be plain JSON: {error}.") from None
    return digest(text.encode())


@dataclass(frozen=True)
class RunFolder:
    """A run on the disk: `run.json`, `shards/`, `curves.parquet` and whatever is drawn from them.

    A shard counts as done when its table is there with the checksum recorded beside it; a damaged
    one is computed again.
    """

    path: Path

    @classmethod
    def prepare(
        cls, root: Path, name: str, config: dict[str, Any], weights: str | None = None
    ) -> RunFolder:
        """Return the folder of this configuration under `root`, made or found."""
        key = run_key(name, config, weights)
        folder = cls(root / f"{name}-{key[:KEY_LENGTH]}")
        record = folder.path / "run.json"
        if record.exists():
            if folder.record()["key"] != key:
                raise BadInput(
                    f"{folder.path} holds another run; remove it or choose another --out."
                )
            return folder
        content = {
            "experiment": name,
            "key": key,
            "config": config,
            "weights": weights,
            "version": attnlimit.__version__,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "versions": {
                "python": platform.python_version(),
                "numpy": np.__version__,
                "pandas": pd.__version__,
                "torch": torch.__version__,
            },
        }
        try:
            write_atomically(record, (json.dumps(content, indent=1) + "\n").encode())
        except OSError as error:
            raise BadInput(f"Cannot write {folder.path}: {error.strerror}.") from None
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the run folder at `path`, which must exist."""
        if not (path / "run.json").is_file():
            raise BadInput(f"{path} is not a run folder: it has no run.json.")
        return cls(path)

    def record(self) -> dict[str, Any]:
        """Return what `run.json` says."""
        try:
            content = json.loads((self.path / "run.json").read_bytes())
            if not isinstance(content, dict) or not {"experiment", "key", "config"} <= set(content):
                raise ValueError("it has no experiment, key and config")
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.path / 'run.json'} is damaged: {error}.") from None
        return content

    def lock(self) -> FileLock:
        """Take the folder for this process, or raise `FolderBusy`; also released by a crash."""
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise FolderBusy(
                f"Another process is writing {self.path}; wait for it or choose another --out."
            ) from None
        for leftover in self.path.rglob(f"*{TEMPORARY_SUFFIX}"):
            leftover.unlink(missing_ok=True)
        return lock

    def file(self, name: str) -> Path:
        """Return the path of `name` inside the folder; a name that leads out of it is refused."""
        root = self.path.resolve()
        path = (root / name).resolve()  # links included
        if root not in path.parents:
            raise BadInput(f"{name!r} leads out of the run folder {self.path}.")
        return path

    def write_frame(self, name: str, frame: pd.DataFrame) -> str:
        """Write a table as parquet and return its checksum."""
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        content = buffer.getvalue()
        write_atomically(self.file(name), content)
        return digest(content)

    def write_shard(self, index: int, frame: pd.DataFrame, seconds: float) -> None:
        """Store one shard; its checksum is written last, so that half a shard does not count."""
        name = f"shards/{index:05d}"
        checksum = self.write_frame(f"{name}.parquet", frame)
        note = {"sha256": checksum, "rows": len(frame), "seconds": round(seconds, 3)}
        write_atomically(self.file(f"{name}.json"), json.dumps(note).encode())

    def read_shard(self, index: int) -> pd.DataFrame | None:
        """Return one shard, or None if it is missing or damaged."""
        name = f"shards/{index:05d}"
        try:
            content = self.file(f"{name}.parquet").read_bytes()
            note = json.loads(self.file(f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(note, dict) or note.get("sha256") != digest(content):
            return None
        return pd.read_parquet(io.BytesIO(content))

    def curves(self) -> pd.DataFrame:
        """Return the finished result."""
        path = self.path / "curves.parquet"
        if not self.finished:
            raise BadInput(f"{self.path} is not finished; run its command again to resume it.")
        return pd.read_parquet(path)

    @property
    def finished(self) -> bool:
        """Whether the result is there and can be read."""
        try:
            pyarrow.parquet.read_metadata(self.path / "curves.parquet")
        except (OSError, pyarrow.ArrowException):
            return False
        return True
