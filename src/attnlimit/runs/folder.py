"""Run folders: `run.json`, shards and a table, keyed by configuration and safe against crashes."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

import attnlimit
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.files import (
    MOST_TABLE,
    PARTIAL,
    Damaged,
    digest,
    read_bytes,
    read_json,
    read_table,
    to_parquet,
    write_atomically,
)

Config = dict[str, Any]
CURVES = "curves.parquet"
SHARD, NOTE = "shards/{:05d}.parquet", "shards/{:05d}.json"
KEY_LENGTH = 12
SCHEMA = "attnlimit.run/2"
TYPES: dict[str, Any] = {
    "experiment": str,
    "key": str,
    "config": dict,
    "weights": str | None,
    "version": str | None,
    "created": str | None,
    "versions": dict | None,
}
LIBRARIES = ("numpy", "scipy", "pandas", "pyarrow", "torch")


class FolderBusy(AttnlimitError):
    """Another process is writing this run folder."""


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of the package, of Python and of the libraries that results depend on."""
    own = {"python": platform.python_version(), "attnlimit": attnlimit.__version__}
    return own | {library: version_of(library) for library in LIBRARIES}


def run_key(
    name: str,
    config: Config,
    weights: str | None = None,
    version: str | None = attnlimit.__version__,
) -> str:
    """Hash of everything a result depends on: experiment, configuration, weights and package."""
    identity: Config = {"schema": SCHEMA, "experiment": name, "config": config}
    identity |= {"version": version, "weights": weights}
    try:
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"The configuration of {name} must be plain JSON: {error}.") from None
    return digest(text.encode())


@dataclass(frozen=True)
class RunFolder:
    """A run on the disk: `run.json`, `shards/`, its table and figures.

    A shard counts as done when its table has the checksum recorded beside it; a damaged one is
    computed again.
    """

    path: Path

    @classmethod
    def prepare(cls, root: Path, name: str, config: Config) -> RunFolder:
        """Return the folder of this configuration under `root`, made if it is not there."""
        return cls.create(root / f"{name}-{run_key(name, config)[:KEY_LENGTH]}", name, config)

    @classmethod
    def create(cls, path: Path, name: str, config: Config) -> RunFolder:
        """Return the folder at `path`, made if it is not there, with the record of this run."""
        folder, key = cls(path), run_key(name, config)
        if (path / "run.json").exists():
            if folder.record()["key"] == key:
                return folder
            raise BadInput(f"{path} holds another run; remove it or choose another --out.")
        content = {
            "schema": SCHEMA,
            "experiment": name,
            "key": key,
            "config": config,
            "weights": None,  # those of a model are in the configuration
            "version": attnlimit.__version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
        }
        try:
            write_atomically(path / "run.json", f"{json.dumps(content, indent=1)}\n".encode())
        except OSError as error:
            raise BadInput(f"Cannot write {path}: {error.strerror}.") from None
        return folder

    def record(self) -> dict[str, Any]:
        """Return the content of `run.json`, checked against its key."""
        path = self.file("run.json")
        content = read_json(path)
        for name, kind in TYPES.items():
            if not isinstance(content, dict) or not isinstance(content.get(name), kind):
                raise Damaged(
                    f"{path} is damaged: {name!r} is missing or of another type; run its command "
                    "again."
                )
        weights, version = content.get("weights"), content.get("version")
        if content.get("schema") != SCHEMA:
            raise BadInput(
                f"{self.path} was made by attnlimit {version or 'of unknown version'}, which "
                "stored runs in another way; run its command again."
            )
        if content["key"] != run_key(content["experiment"], content["config"], weights, version):
            raise Damaged(
                f"{path} is damaged: its key is not that of its configuration; run its command "
                "again."
            )
        return content

    def lock(self) -> FileLock:
        """Take the folder for this process, or raise `FolderBusy`; a crash releases it too."""
        lock = FileLock(self.file(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise FolderBusy(
                f"Another process is writing {self.path}; wait for it or choose another --out."
            ) from None
        for leftover in self.path.rglob(f"*{PARTIAL}"):
            if not leftover.is_dir():
                leftover.unlink(missing_ok=True)
        return lock

    def file(self, name: str) -> Path:
        """Return the path of `name` inside the folder; a name that leads out of it is refused."""
        root = self.path.resolve()
        try:
            path = (root / name).resolve()  # links included
        except (OSError, ValueError):  # a loop of links, a zero byte
            path = root
        if root not in path.parents:
            raise BadInput(f"{name!r} leads out of the run folder {self.path}.")
        return path

    def write_shard(self, index: int, content: bytes, seconds: float) -> None:
        """Store the parquet of one shard; its checksum comes last: half a shard does not count.

        The checksum need not survive a power cut: without it the shard is computed again.
        """
        write_atomically(self.file(SHARD.format(index)), content)
        note = json.dumps({"sha256": digest(content), "seconds": round(seconds, 3)})
        write_atomically(self.file(NOTE.format(index)), note.encode(), durable=False)

    def read_shard(self, index: int) -> pd.DataFrame | None:
        """Return one shard, or None if it is missing or damaged."""
        try:
            content = read_bytes(self.file(SHARD.format(index)), MOST_TABLE)
            note = read_json(self.file(NOTE.format(index)))
            whole = isinstance(note, dict) and note.get("sha256") == digest(content)
            return read_table(content, f"Shard {index}") if whole else None
        except (OSError, ValueError):
            return None

    def seconds(self) -> float:
        """Return the seconds that all stored shards took to compute, added up."""
        notes = (read_json(path) for path in (self.path / "shards").glob("*.json"))
        return sum(float(note.get("seconds", 0.0)) for note in notes if isinstance(note, dict))

    def failures(self) -> list[dict[str, Any]]:
        """Return the shards that failed, as `write_failures` listed them."""
        path = self.file("failures.json")
        content = read_json(path) if path.exists() else []
        if not isinstance(content, list) or not all(
            isinstance(entry, dict) and {"shard", "error"} <= set(entry) for entry in content
        ):
            raise Damaged(f"{path} is damaged: it must be a list of shards that failed.")
        return content

    def write_failures(self, failures: list[dict[str, Any]]) -> None:
        """List the shards that failed, or remove the list when there are none."""
        path = self.file("failures.json")
        path.unlink(missing_ok=True)
        if failures:
            write_atomically(path, f"{json.dumps(failures, indent=1)}\n".encode())

    def write_table(self, frame: pd.DataFrame) -> None:
        """Write the table of the finished result."""
        write_atomically(self.file(CURVES), to_parquet(frame))

    def table(self) -> pd.DataFrame:
        """Return the table of the finished result."""
        path = self.file(CURVES)
        if not path.exists():
            raise BadInput(f"{self.path} is not finished; run its command again to resume it.")
        try:
            return read_table(read_bytes(path, MOST_TABLE), str(path))
        except (OSError, ValueError) as error:
            raise Damaged(
                f"{str(error).partition('; write')[0].rstrip('.')}; run its command again to make "
                "it from its shards."
            ) from None

    @property
    def finished(self) -> bool:
        """Whether the record and the table of the result can be read."""
        try:
            self.record()
            self.table()
        except BadInput:
            return False
        return True
