"""Resumable maps: results stored in a run folder, computed by any `concurrent.futures.Executor`."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd

from attnlimit.errors import AttnlimitError, BadInput, Interrupted, MissingExtra
from attnlimit.files import to_parquet
from attnlimit.runs.folder import SHARD, RunFolder, versions
from attnlimit.threads import one_thread

Function = Callable[[Any], pd.DataFrame]
TRIES = 3
"""How often an item is computed whose worker dies or runs out of memory."""
QUEUED_PER_WORKER = 2
# torch has no exception of its own for a failed allocation on the CPU.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class ExecutorLost(AttnlimitError):
    """The executor no longer accepts work; finished shards are kept."""


class CannotStore(AttnlimitError):
    """The disk accepts no more data; finished shards are kept."""


class ShardsFailed(AttnlimitError):
    """Some items failed; the results of all others are stored.

    `summary` is the message without the place where failures are listed.
    """

    def __init__(self, summary: str, place: str = "") -> None:
        super().__init__(f"{summary}{place}")
        self.summary = summary


@dataclass(frozen=True)
class Status:
    """Progress of a run; `message` is an event to be shown once, empty most of the time."""

    done: int
    total: int
    failed: int = 0
    message: str = ""


Progress = Callable[[Status], None]


def resumable_map(
    function: Function,
    items: Sequence[Any],
    folder: RunFolder | Path,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[pd.DataFrame]:
    """Apply `function` to every item, computing only the results that `folder` does not hold yet.

    Parameters
    ----------
    function : callable
        Takes an item and returns its rows. It must be importable by workers, and depend on nothing
        but the item: random numbers come from a seed inside it.
    items : sequence
        JSON-able values.
    folder : RunFolder or Path
        A run folder, or the path of one for this function and these items.
    executor : concurrent.futures.Executor, optional
        Computes the items: a `ProcessPool`, or Dask's ``Client.get_executor(pure=False)``; this
        process by default. The caller shuts it down.
    progress : callable, optional
        Called with a `Status` after every change.

    Returns
    -------
    list of DataFrame
        The rows of every item, in order, the same for any executor and after any interruption.
        Each item is computed on one thread, and stored as one shard when it is done.
    """
    if isinstance(folder, Path):
        name = f"{function.__module__}.{function.__qualname__}"
        folder = RunFolder.create(folder, name, {"items": list(items)})
    with folder.lock():
        _Map(function, items, folder, progress).complete(executor or _ThisProcess())
    stored = map(folder.read_shard, range(len(items)))
    if len(frames := [frame for frame in stored if frame is not None]) < len(items):
        raise AttnlimitError(f"A shard of {folder.path} is damaged; run the same command again.")
    return frames


def compute(function: Function, item: Any, expected: dict[str, str]) -> tuple[bytes, float]:
    """Return the rows of an item as parquet, and the seconds they took, in a worker.

    On one thread: the order of sums, and so the last bit of a result, must not depend on the number
    of cores. A worker whose versions are not the `expected` ones is refused.
    """
    here = versions()
    if other := [f"{name} {here.get(name)}" for name in expected if here[name] != expected[name]]:
        raise BadInput(f"A worker has other versions than this machine: {', '.join(other)}.")
    started = time.perf_counter()
    with one_thread():
        content = to_parquet(function(item))
    return content, time.perf_counter() - started


@dataclass
class _Map:
    function: Function
    items: Sequence[Any]
    folder: RunFolder
    progress: Progress | None
    stopping: bool = False
    failures: list[dict[str, Any]] = field(default_factory=list)
    suspects: deque[int] = field(default_factory=deque)  # computed alone: one ended a worker
    deaths: dict[int, int] = field(default_factory=dict)

    def complete(self, executor: Executor) -> None:
        """Compute the missing shards, and raise if some failed."""
        self.status = Status(0, len(self.items))
        missing = deque(self._missing())
        self._report(done=len(self.items) - len(missing))
        try:
            with self._finishing_on_interrupt():
                self._compute(executor, missing)
        except KeyboardInterrupt:
            raise Interrupted(self._resumable("Stopped with")) from None
        self.folder.write_failures(self.failures)
        if self.failures:
            first, many = self.failures[0], f"{len(self.failures)} of {len(self.items)}"
            raise ShardsFailed(
                f"{many} shards failed; shard {first['shard']}: {first['error'].rstrip('.')}.",
                f" All are listed in {self.folder.path / 'failures.json'}; the same command "
                "computes only those again.",
            )

    def _missing(self) -> Iterator[int]:
        for index in range(len(self.items)):
            if self.folder.read_shard(index) is None:
                if (self.folder.path / SHARD.format(index)).exists():
                    self._report(f"shard {index}: its file is damaged; computing it again.")
                yield index

    def _compute(self, executor: Executor, missing: deque[int]) -> None:
        running: dict[Future[tuple[bytes, float]], int] = {}
        expected = versions()
        while True:
            limit = QUEUED_PER_WORKER * _width(executor)
            while not self.stopping and len(running) < limit and (self.suspects or missing):
                if self.suspects and running:
                    break
                index = (self.suspects or missing).popleft()
                try:
                    future = executor.submit(compute, self.function, self.items[index], expected)
                except (RuntimeError, OSError) as error:
                    raise self._lost(error) from None
                running[future] = index
                if index in self.deaths:
                    break
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                self._settle(future, running.pop(future))
        if self.stopping:
            raise KeyboardInterrupt

    def _settle(self, future: Future[tuple[bytes, float]], index: int) -> None:
        try:
            content, seconds = future.result()
        except (BadInput, MissingExtra):
            raise
        except CancelledError as error:
            raise self._lost(error) from None
        except Exception as error:
            died = self.deaths.get(index, 0) + 1
            if _ended_its_worker(error) and died < TRIES and not self.stopping:
                self.deaths[index] = died
                self.suspects.append(index)
                self._report(f"shard {index}: {_sentence(error)} Trying it alone.")
                return
            trace = "".join(traceback.format_exception(error))
            about = {"shard": index, "error": _sentence(error), "trace": trace}
            self.failures.append(about | {"item": self.items[index]})
            self._report(f"shard {index}: {_sentence(error)}", failed=len(self.failures))
            return
        try:
            self.folder.write_shard(index, content, seconds)
        except OSError as error:
            place = f"Cannot write to {self.folder.path}: {error.strerror}."
            raise CannotStore(f"{place} {self._resumable('There are')}") from None
        self._report(done=self.status.done + 1)

    def _lost(self, error: BaseException) -> ExecutorLost:
        reason = str(error).strip() or type(error).__name__
        return ExecutorLost(f"The executor is gone ({reason}). {self._resumable('There are')}")

    def _resumable(self, verb: str) -> str:
        return (
            f"{verb} {self.status.done} of {self.status.total} shards done in "
            f"{self.folder.path}; run the same command again to resume."
        )

    @contextlib.contextmanager
    def _finishing_on_interrupt(self) -> Iterator[None]:
        """Let the first Ctrl-C finish the items under way; the second raises."""
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
        self._report("finishing the shards under way; Ctrl-C again stops at once.")

    def _report(self, message: str = "", **changes: int) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]
        if self.progress is not None:
            self.progress(replace(self.status, message=message))


def _ended_its_worker(error: Exception) -> bool:
    """Whether a worker was killed, or lacked the memory for an item."""
    if isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY):
        return True
    return isinstance(error, BrokenExecutor | MemoryError) or "Killed" in type(error).__name__


def _sentence(error: Exception) -> str:
    if isinstance(error, BrokenExecutor) or "Killed" in type(error).__name__:
        return "a worker was killed, perhaps for lack of memory."
    return f"{type(error).__name__}: {str(error).strip().rstrip('.')}."


def _width(executor: Executor) -> float:
    """Return how many items an executor computes at a time."""
    client = getattr(executor, "_client", None)  # of Dask, whose workers come and go
    if client is None:
        return float(getattr(executor, "width", getattr(executor, "_max_workers", 1)))
    with contextlib.suppress(OSError, RuntimeError):
        return max(sum(client.nthreads().values()), 1)
    return 1


class _ThisProcess(Executor):
    """Compute each item when it is submitted."""

    width = 0.5  # one at a time

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ProcessPool(Executor):
    """Processes of one thread each, replaced as a whole after one of them has been killed.

    Parameters
    ----------
    workers : int
        Number of processes.
    """

    def __init__(self, workers: int) -> None:
        self.width = workers
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call, in a new pool if the last one is broken."""
        with _starting_processes():
            if self._pool is not None:
                with contextlib.suppress(BrokenExecutor):
                    return self._pool.submit(fn, *args, **kwargs)
                self._pool.shutdown()
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.width, context, initializer=_end_with_parent)
            return self._pool.submit(fn, *args, **kwargs)

    def __exit__(self, *exception: object) -> None:
        self.shutdown(cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with `cancel_futures` also those that are computing."""
        if self._pool is None:
            return
        if cancel_futures:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._pool = None


def _end_with_parent() -> None:
    """End this worker as soon as its parent has ended, even by kill -9."""
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextlib.contextmanager
def _starting_processes() -> Iterator[None]:
    """Start processes that use one thread, with Ctrl-C blocked: a terminal sends it to all."""
    environment = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    posix = hasattr(signal, "pthread_sigmask")
    if posix:
        resource_tracker.ensure_running()  # starting it later would lift the block
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if posix:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name in THREAD_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(environment)
