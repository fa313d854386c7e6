"""Where does the work run? Behind one small interface, so that the numbers do not depend on it."""

from __future__ import annotations

from typing import Protocol

from attnlimit.errors import AttnlimitError
from attnlimit.runs.task import Outcome, Task, compute


class ExecutorLost(AttnlimitError):
    """Where the work was done is gone; what had come back is kept."""


class Executor(Protocol):
    """Does tasks, several at a time; used as `with executor:`.

    The driver submits at most `slots` tasks before it waits for one, so that a million shards
    never queue anywhere, and submits again what failed and deserves another try.
    """

    @property
    def slots(self) -> int:
        """How many tasks are worth having under way at once."""

    @property
    def description(self) -> str:
        """Where the work is done, for people; known once it is entered."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *exception: object) -> None: ...

    def submit(self, task: Task) -> None:
        """Take a task."""

    def wait(self) -> Outcome:
        """Return the next task that ended, well or not."""


class InProcess:
    """Does tasks one after another, here."""

    slots = 1
    description = "this process"

    def __init__(self) -> None:
        self._waiting: list[Task] = []

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self._waiting.clear()

    def submit(self, task: Task) -> None:
        """Remember a task until somebody waits for it."""
        self._waiting.append(task)

    def wait(self) -> Outcome:
        """Do the oldest task."""
        return compute(self._waiting.pop(0))
