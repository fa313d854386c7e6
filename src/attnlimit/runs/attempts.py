"""What happens to work that fails? Another try, a smaller piece, and in the end it is set aside."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from attnlimit.runs.experiment import Shard
from attnlimit.runs.task import Fault, Task
from attnlimit.tables import to_parquet

TRIES = 3
DEATHS_BEFORE_SPLITTING = 2  # one death is an accident; two of one shard look like its memory


@dataclass(frozen=True)
class SetAside:
    """A shard that failed at every try."""

    index: int
    shard: Shard
    tries: int
    fault: Fault

    def to_dict(self) -> dict[str, Any]:
        """Return what `failures.json` says of it."""
        return {
            "shard": self.index,
            "tries": self.tries,
            "kind": self.fault.kind,
            "error": self.fault.message,
            "trace": self.fault.trace,
            "configuration": self.shard,
        }


class Attempts:
    """Keeps count of the few tasks that failed; those that did not leave no trace here."""

    def __init__(self, split: Callable[[Shard], list[Shard]]) -> None:
        self._split = split
        self._tries: dict[tuple[int, int], int] = {}
        self._parts: dict[int, dict[int, bytes | None]] = {}
        self.set_aside: dict[int, SetAside] = {}

    def finished(self, task: Task, content: bytes) -> bytes | None:
        """Return the rows of the whole shard, once they are all there."""
        self._tries.pop((task.index, task.first), None)
        if task.index in self.set_aside:
            return None
        parts = self._parts.get(task.index)
        if parts is None:
            return content
        parts[task.first] = content
        rows = [part for _, part in sorted(parts.items()) if part is not None]
        if len(rows) < len(parts):
            return None
        del self._parts[task.index]
        frames = [pd.read_parquet(io.BytesIO(part)) for part in rows]
        return to_parquet(pd.concat(frames, ignore_index=True))

    def failed(self, task: Task, fault: Fault) -> tuple[list[Task], str]:
        """Return what to do instead, nothing if the shard is given up, and a sentence on it."""
        if task.index in self.set_aside:
            return [], ""
        key = (task.index, task.first)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        starved = fault.kind == "memory" or (
            fault.kind == "died" and tries >= DEATHS_BEFORE_SPLITTING
        )
        halves = self._halves(task) if starved else []
        said = f"shard {task.index}: {fault.message}"
        if halves:
            del self._tries[key]
            parts = self._parts.setdefault(task.index, {task.first: None})
            parts.update((half.first, None) for half in halves)
            return halves, f"{said}; trying it in smaller pieces."
        if tries < TRIES:
            return [task], f"{said}; trying again ({tries + 1} of {TRIES})."
        self._parts.pop(task.index, None)
        self.set_aside[task.index] = SetAside(task.index, json.loads(task.shard), tries, fault)
        return [], f"{said}; set aside after {tries} tries."

    def _halves(self, task: Task) -> list[Task]:
        return [
            replace(task, shard=json.dumps(part), first=part.get("first", 0))
            for part in self._split(json.loads(task.shard))
        ]
