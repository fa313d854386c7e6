"""What does a run leave on the disk? A folder keyed by its configuration, safe against crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from filelock import FileLock, Timeout

import attnlimit
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.files import PARTIAL, Damaged, digest, read_bytes, read_json, write_atomically
from attnlimit.runs.experiment import CURVES, Config
from attnlimit.runs.record import SCHEMA, read_record, versions
from attnlimit.tables import MOST_TABLE, read_table, to_parquet

KEY_LENGTH = 12


class FolderBusy(AttnlimitError):
    """Another process is writing this run folder."""


def run_key(
    name: str,
    config: Config,
    weights: str | None = None,
    version: str | None = attnlimit.__version__,
) -> str:
    """Hash of everything a result depends on: experiment, configuration, weights and package."""
    identity = {
        "schema": SCHEMA,
        "experiment": name,
        "config": config,
        "version": version,
        "weights": weights,
    }
    try:
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"The configuration of {name} must be plain JSON: {error}.") from None
    return digest(text.encode())


@dataclass(frozen=True)
class RunFolder:
    """A run on the disk: `run.json`, `shards/`, its tables and whatever is drawn from them.

    A shard counts as done when its table is there with the checksum recorded beside it; a damaged
    one is computed again.
    """

    path: Path

    @classmethod
    def prepare(
        cls,
        root: Path,
        name: str,
        config: Config,
        weights: str | None = None,
        tables: Sequence[str] = (CURVES,),
    ) -> RunFolder:
        """Return the folder of this configuration under `root`, made or found."""
        key = run_key(name, config, weights)
        folder = cls(root / f"{name}-{key[:KEY_LENGTH]}")
        record = folder.path / "run.json"
        if record.exists():
            if read_record(folder.file("run.json"))["key"] == key:
                return folder
            raise BadInput(f"{folder.path} holds another run; remove it or choose another --out.")
        content = {
            "schema": SCHEMA,
            "experiment": name,
            "key": key,
            "config": config,
            "weights": weights,
            "tables": list(tables),
            "version": attnlimit.__version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
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
        """Return what `run.json` says; its key tells whether that is what was written."""
        path = self.file("run.json")
        said = read_record(path)
        weights, version = said.get("weights"), said.get("version")
        if said["key"] != run_key(said["experiment"], said["config"], weights, version):
            raise Damaged(f"{path} is damaged: its key is not that of its configuration.")
        return said

    def lock(self) -> FileLock:
        """Take the folder for this process, or raise `FolderBusy`; also released by a crash."""
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
        root = _resolved(self.path.absolute())
        try:
            path = (root / name).resolve()  # links included
        except (OSError, ValueError):  # a loop of links, a zero byte
            path = root
        if root not in path.parents:
            raise BadInput(f"{name!r} leads out of the run folder {self.path}.")
        return path

    def write_table(self, name: str, frame: pd.DataFrame, schema: pa.Schema | None = None) -> None:
        """Write a table, of the types of `schema` if there is one."""
        write_atomically(self.file(f"{name}.parquet"), to_parquet(frame, schema))

    def write_shard(self, index: int, content: bytes, seconds: float) -> None:
        """Store the parquet of one shard; its checksum comes last: half a shard does not count.

        The checksum need not survive a power cut: without it the shard is computed again.
        """
        name = f"shards/{index:05d}"
        write_atomically(self.file(f"{name}.parquet"), content)
        note = json.dumps({"sha256": digest(content), "seconds": round(seconds, 3)})
        write_atomically(self.file(f"{name}.json"), note.encode(), durable=False)

    def read_shard(self, index: int) -> pd.DataFrame | None:
        """Return one shard, or None if it is missing or damaged."""
        content = self._shard(index)
        try:
            return None if content is None else read_table(content, f"Shard {index}")
        except Damaged:
            return None

    def survey(self, shards: int) -> Iterator[tuple[int, bool]]:
        """Yield the shards below `shards` that have files here, and whether they are whole."""
        folder = self.path / "shards"
        for index in range(shards) if folder.is_dir() else ():
            if (folder / f"{index:05d}.parquet").exists():
                yield index, self._shard(index) is not None

    def _shard(self, index: int) -> bytes | None:
        name = f"shards/{index:05d}"
        try:
            content = read_bytes(self.file(f"{name}.parquet"), MOST_TABLE)
            note = read_json(self.file(f"{name}.json"))
        except (OSError, ValueError):
            return None
        whole = isinstance(note, dict) and note.get("sha256") == digest(content)
        return content if whole else None

    def failures(self) -> list[dict[str, Any]]:
        """Return the shards that were set aside, as `write_failures` listed them."""
        path = self.file("failures.json")
        if not path.exists():
            return []
        said = read_json(path)
        if not isinstance(said, list) or not all(
            isinstance(one, dict) and {"shard", "tries", "error"} <= set(one) for one in said
        ):
            raise Damaged(f"{path} is damaged: it is not a list of shards that failed.")
        return said

    def write_failures(self, failures: list[dict[str, Any]]) -> None:
        """List the shards that were set aside, or remove the list when there are none."""
        path = self.file("failures.json")
        if failures:
            write_atomically(path, (json.dumps(failures, indent=1) + "\n").encode())
        else:
            path.unlink(missing_ok=True)
            for partial in self.path.glob("partial-*.parquet"):
                partial.unlink()

    def table(self, name: str = CURVES, schema: pa.Schema | None = None) -> pd.DataFrame:
        """Return one table of the finished result, which has to have the types of `schema`."""
        path = self.file(f"{name}.parquet")
        if not path.exists():
            raise BadInput(f"{self.path} is not finished; run its command again to resume it.")
        try:
            return read_table(read_bytes(path, MOST_TABLE), str(path), schema)
        except (OSError, ValueError) as error:
            raise Damaged(
                f"{str(error).rstrip('.')}; run its command again to make it from its shards."
            ) from None

    @property
    def finished(self) -> bool:
        """Whether all tables of the result are there and can be read."""
        try:
            for name in self.record()["tables"]:
                self.table(name)
        except BadInput:
            return False
        return True


@lru_cache(maxsize=64)
def _resolved(path: Path) -> Path:
    return path.resolve()
