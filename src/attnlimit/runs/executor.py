"""Where do shards run? In this process or in several on this machine, with the same numbers."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from attnlimit.runs.folder import RunFolder

# One thread inside a shard: the order of floating point sums, and so the last bit of a result,
# must not depend on how many cores there are. Cores are used by running several shards.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Executor(Protocol):
    """Runs shards of a run folder, yielding the index of each one as it is finished.

    A task is (index, JSON of the shard, seed entropy, stream): plain values that any transport
    can carry. `run_task` does the work and stores its own result in the folder.
    """

    def run(self, folder: Path, experiment: str, tasks: list[Task]) -> Iterator[int]:
        """Run `tasks` and yield their indices in the order in which they finish."""
        ...


Task = tuple[int, str, int, int]


def run_task(folder: str, experiment: str, task: Task) -> int:
    """Compute one shard in this process and store it."""
    from attnlimit.experiments import load

    index, text, entropy, stream = task
    started = time.perf_counter()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seed = np.random.SeedSequence(entropy, spawn_key=(stream,))
        frame = load(experiment).compute(json.loads(text), seed)
    finally:
        torch.set_num_threads(before)
    RunFolder(Path(folder)).write_shard(index, frame, time.perf_counter() - started)
    return index


class InProcess:
    """Runs shards one after another, here."""

    def run(self, folder: Path, experiment: str, tasks: list[Task]) -> Iterator[int]:
        """Run `tasks` in order."""
        for task in tasks:
            yield run_task(str(folder), experiment, task)


class LocalProcesses:
    """Runs shards in `workers` fresh processes of one thread each."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, folder: Path, experiment: str, tasks: list[Task]) -> Iterator[int]:
        """Run `tasks`, a few queued at a time so that an interruption is quick."""
        with _single_threaded_children():
            pool = ProcessPoolExecutor(
                min(self.workers, max(1, len(tasks))),
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_prepare_worker,
            )
            try:
                waiting: Iterable[Task] = iter(tasks)
                futures = {pool.submit(run_task, str(folder), experiment, task) for task in waiting}
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            pool.shutdown()


class _single_threaded_children:
    """Sets the thread variables for processes started inside the `with` block."""

    def __enter__(self) -> None:
        self.before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))

    def __exit__(self, *exception: object) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
