"""How is the work spread over the cores of this machine? A few processes of one thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from attnlimit.errors import AttnlimitError
from attnlimit.runs.task import Fault, Outcome, Task, compute, pack, unpack

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
READY = b"ready"
FALSE_STARTS = 3


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    task: Task | None = None


class LocalProcesses:
    """Does tasks in `workers` processes; one that dies is replaced, and its task is known.

    A standard process pool breaks as a whole when one process is killed, and does not say which
    task it was doing.
    """

    def __init__(self, workers: int) -> None:
        self.slots = workers
        self.description = f"{workers} process{'es' * (workers > 1)}"
        self._workers: list[_Worker] = []
        self._waiting: list[Task] = []

    def __enter__(self) -> LocalProcesses:
        self._false_starts = 0
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()
        self._waiting.clear()

    def submit(self, task: Task) -> None:
        """Give a task to an idle process, starting one if there is room for it."""
        self._waiting.append(task)
        self._hand_out()

    def wait(self) -> Outcome:
        """Return the next task that ended, or whose process did."""
        while True:
            ready = wait([worker.pipe for worker in self._workers])
            worker = next(one for one in self._workers if one.pipe in ready)
            try:
                outcome = self._hear(worker, worker.pipe.recv_bytes())
            except (EOFError, OSError):
                outcome = self._bury(worker)
            self._hand_out()
            if outcome is not None:
                return outcome

    def _hand_out(self) -> None:
        for task in list(self._waiting):
            idle = next((one for one in self._workers if one.ready and one.task is None), None)
            if idle is None:
                break
            try:
                idle.pipe.send_bytes(task.to_bytes())
            except OSError:
                break  # it has just died; wait() will notice
            idle.task = task
            self._waiting.remove(task)
        starting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self.slots and starting < len(self._waiting):
            self._workers.append(_start())
            starting += 1

    def _hear(self, worker: _Worker, message: bytes) -> Outcome | None:
        if message == READY:
            worker.ready = True
            self._false_starts = 0
            return None
        task, worker.task = worker.task, None
        assert task is not None
        return unpack(task, message)

    def _bury(self, worker: _Worker) -> Outcome | None:
        self._workers.remove(worker)
        worker.pipe.close()
        worker.process.join()
        if not worker.ready:
            self._false_starts += 1
            if self._false_starts >= FALSE_STARTS:
                raise AttnlimitError(
                    f"Worker processes end before they begin (exit code "
                    f"{worker.process.exitcode}); in a script, call this under "
                    "`if __name__ == '__main__':`, or do without workers."
                )
        if worker.task is None:
            return None
        code = worker.process.exitcode
        said = f"its process ended with exit code {code}"
        if code is not None and code < 0:
            said = f"its process was ended by {signal.Signals(-code).name}"
        return Outcome(worker.task, fault=Fault("died", said))


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    with _single_threaded_children(), unheard():
        process.start()
    there.close()  # so that the end of the process is the end of the pipe
    return _Worker(process, here)


def serve(pipe: Connection) -> None:
    """Do tasks until the pipe closes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    pipe.send_bytes(READY)
    while True:
        try:
            content = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(pack(compute(Task.from_bytes(content))))


def _end_with(parent: BaseProcess) -> None:
    """End as soon as the parent does, even when it is killed in the middle of a shard."""
    parent.join()
    os._exit(1)


@contextmanager
def _single_threaded_children() -> Iterator[None]:
    """Set the thread variables for processes started inside the `with` block."""
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def unheard() -> Iterator[None]:
    """Start processes and threads that never hear Ctrl-C, which a terminal sends to all of them.

    They inherit the block, from their first instant on; here it is lifted, and heard, at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it later would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
