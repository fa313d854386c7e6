"""How is an experiment run, or resumed, so that no order, fault or interruption changes a bit?"""

from __future__ import annotations

import json
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import pandas as pd

from attnlimit.errors import AttnlimitError, BadInput, Interrupted
from attnlimit.runs.attempts import Attempts
from attnlimit.runs.executor import Executor, ExecutorLost, InProcess
from attnlimit.runs.experiment import CURVES, Config, Runnable
from attnlimit.runs.folder import RunFolder
from attnlimit.runs.task import Outcome, Task

GATHERED_AT_ONCE = 1000


@dataclass(frozen=True)
class Status:
    """A run at one moment; `message` is news to be read once, empty most of the time."""

    done: int
    total: int
    running: int = 0
    failures: int = 0
    set_aside: int = 0
    where: str = ""
    message: str = ""


Progress = Callable[[Status], None]


class CannotStore(AttnlimitError):
    """The disk took no more; what was finished is kept."""


class ShardsSetAside(AttnlimitError):
    """Some shards failed at every try; all others are done and kept.

    `what` says which and why, without where they are listed.
    """

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{what}{where}")
        self.what = what


def execute(
    experiment: Runnable,
    config: Config,
    root: Path,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    weights: str | None = None,
) -> RunFolder:
    """Run `experiment` under `root`, computing only the shards that are not there yet.

    Every shard draws from its own child of the configuration's seed, and the shards are combined
    in their own order, so the result is the same for any executor and after any interruption.
    Rows come back to this process, which alone writes the folder.
    """
    tables = tuple(experiment.schemas) or (CURVES,)
    folder = RunFolder.prepare(root, experiment.name, config, weights, tables)
    if folder.finished:
        return folder
    with folder.lock():
        _Run(experiment, config, folder, progress).complete(executor or InProcess())
    return folder


class _Run:
    def __init__(
        self, experiment: Runnable, config: Config, folder: RunFolder, progress: Progress | None
    ) -> None:
        self.experiment, self.config, self.folder = experiment, config, folder
        self.progress, self.stopping = progress, False
        self.attempts = Attempts(experiment.split)
        total = sum(1 for _ in experiment.shards(config))
        self.done = bytearray(total)  # a byte a shard is all that grows with their number
        self.status = Status(0, total)

    def complete(self, executor: Executor) -> None:
        """Do what is missing, and combine."""
        self._find_done()
        try:
            if self.status.done < self.status.total:
                self._work(executor)
        except KeyboardInterrupt:
            raise Interrupted(self._resumable("Stopped with")) from None
        except ExecutorLost as error:
            raise ExecutorLost(f"{error} {self._resumable('There are')}") from None
        self._report_set_aside()
        self._store(list(range(self.status.total)))

    def _find_done(self) -> None:
        for index, whole in self.folder.survey(self.status.total):
            self.done[index] = whole
            if not whole:
                self._say(f"shard {index}: its file is damaged; computing it again.")
        self._say(done=sum(self.done))

    def _work(self, executor: Executor) -> None:
        fresh, again = self._missing(), deque[Task]()
        with self._interruptible(), executor as where:
            self._say(where=where.description)
            while True:
                while self.status.running < where.slots and not self.stopping:
                    task = again.popleft() if again else next(fresh, None)
                    if task is None:
                        break
                    where.submit(task)
                    self._say(running=self.status.running + 1)
                if not self.status.running:
                    break
                outcome = where.wait()
                self._say(running=self.status.running - 1, where=where.description)
                again.extend(self._settle(outcome))
            if self.stopping:
                raise KeyboardInterrupt

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let the first Ctrl-C finish what is under way; the second raises."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
        self._say(message="finishing what is under way; Ctrl-C again stops at once.")

    def _missing(self) -> Iterator[Task]:
        for index, shard in enumerate(self.experiment.shards(self.config)):
            if not self.done[index]:
                text = json.dumps(shard, allow_nan=False)
                stream = shard.get("stream", index)
                yield Task(index, self.experiment.path, text, self.config["seed"], stream)

    def _settle(self, outcome: Outcome) -> list[Task]:
        """Store what came back, or return what to do instead."""
        task, fault = outcome.task, outcome.fault
        if fault is None:
            content = self.attempts.finished(task, outcome.content)
            if content is not None:
                with self._storing():
                    self.folder.write_shard(task.index, content, outcome.seconds)
                self.done[task.index] = 1
                self._say(done=self.status.done + 1)
            return []
        if fault.kind == "input":
            raise BadInput(fault.message)
        instead, sentence = self.attempts.failed(task, fault)
        given_up = len(self.attempts.set_aside)
        self._say(sentence, failures=self.status.failures + 1, set_aside=given_up)
        return instead

    def _report_set_aside(self) -> None:
        given_up = self.attempts.set_aside
        self.folder.write_failures([given_up[index] for index in sorted(given_up)])
        if not given_up:
            return
        kept = [index for index in range(self.status.total) if self.done[index]]
        try:
            self._store(kept, "partial-")
            partial = " What the others say is in the tables whose names begin with partial."
        except Exception:  # an experiment need not make sense of some of its shards
            partial = ""
        first = given_up[min(given_up)]
        raise ShardsSetAside(
            f"{len(given_up)} of {self.status.total} shards failed and were set aside: "
            f"{', '.join(map(str, sorted(given_up)[:10]))}{', ...' * (len(given_up) > 10)}; "
            f"shard {first['shard']} with {first['error'].rstrip('.')}.",
            f" All are listed in {self.folder.path / 'failures.json'}.{partial} The same command "
            "tries only those again.",
        )

    def _store(self, shards: list[int], prefix: str = "") -> None:
        found = self.experiment.combine(self.config, gathered_rows(self.folder, shards))
        tables = {CURVES: found} if isinstance(found, pd.DataFrame) else found
        with self._storing():
            for name, frame in tables.items():
                schema = self.experiment.schemas.get(name)
                self.folder.write_table(f"{prefix}{name}", frame, schema)

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CannotStore(
                f"Cannot write to {self.folder.path}: {error.strerror}. "
                f"{self._resumable('There are')}"
            ) from None

    def _resumable(self, verb: str) -> str:
        return (
            f"{verb} {self.status.done} of {self.status.total} shards done in "
            f"{self.folder.path}; run the same command again to resume."
        )

    def _say(self, message: str = "", **changes: int | str) -> None:
        self.status = replace(self.status, message="", **changes)  # type: ignore[arg-type]
        if self.progress is not None:
            self.progress(replace(self.status, message=message))


def gathered_rows(folder: RunFolder, shards: list[int]) -> pd.DataFrame:
    """Return the rows of all shards, in their order."""
    gathered: list[pd.DataFrame] = []
    batch: list[pd.DataFrame] = []
    for index in shards:
        frame = folder.read_shard(index)
        if frame is None:
            raise AttnlimitError(
                f"Shard {index} of {folder.path} was damaged after it was written; run again."
            )
        batch.append(frame.assign(shard=index))
        if len(batch) == GATHERED_AT_ONCE:  # small tables take more memory than their rows
            gathered, batch = [pd.concat([*gathered, *batch], ignore_index=True)], []
    return pd.concat([*gathered, *batch], ignore_index=True)
