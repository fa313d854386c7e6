"""What happens to work that fails? Another try, a smaller piece, and in the end it is set aside."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from attnlimit.runs.experiment import Shard
from attnlimit.runs.task import Fault, Task
from attnlimit.tables import to_parquet

TRIES = 3
DEATHS_BEFORE_SPLITTING = 2  # one death is an accident; two of one shard look like its memory


class Attempts:
    """Keeps count of the few tasks that failed; those that did not leave no trace here.

    `set_aside` has the shards that failed at every try, as `failures.json` lists them.
    """

    def __init__(self, split: Callable[[Shard], list[Shard]]) -> None:
        self._split = split
        self._tries: dict[tuple[int, int], int] = {}
        self._parts: dict[int, dict[int, bytes | None]] = {}
        self.set_aside: dict[int, dict[str, Any]] = {}

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
        halves = self._split(json.loads(task.shard)) if starved else []
        said = f"shard {task.index}: {fault.message}"
        if halves:
            del self._tries[key]
            parts = self._parts.setdefault(task.index, {task.first: None})
            smaller = [
                replace(task, shard=json.dumps(half), first=half.get("first", 0)) for half in halves
            ]
            parts.update((half.first, None) for half in smaller)
            return smaller, f"{said}; trying it in smaller pieces."
        if tries < TRIES and fault.kind != "refused":
            return [task], f"{said}; trying again ({tries + 1} of {TRIES})."
        self._parts.pop(task.index, None)
        self.set_aside[task.index] = {
            "shard": task.index,
            "tries": tries,
            "kind": fault.kind,
            "error": fault.message,
            "trace": fault.trace,
            "configuration": json.loads(task.shard),
        }
        return [], f"{said}; set aside after {tries} {'try' if tries == 1 else 'tries'}."
