"""How is the work spread over many machines? As tasks of a Dask cluster, a few at a time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import queue
import time
import uuid
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput, MissingExtra
from attnlimit.runs.executor import ExecutorLost
from attnlimit.runs.processes import THREAD_VARIABLES, unheard
from attnlimit.runs.record import versions
from attnlimit.runs.task import (
    BUNDLE_SECONDS,
    Fault,
    FaultKind,
    Outcome,
    Task,
    compute_bundle,
    unpack,
)

LOCAL = "local"
SECONDS_TO_CONNECT = 15
SECONDS_BETWEEN_COUNTS = 5
SECONDS_WITHOUT_WORKERS = 120
QUEUED_PER_THREAD = 2  # the next task is there when one ends, and no more than that
LARGEST_BUNDLE = 50
RECENT = 16
# The driver hears of every death at once, and only of the task that was being done; a worker may
# take as long as it needs to start again.
SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.deploy.lost-worker-timeout": "1 hour",
    # Without Dask's MALLOC_TRIM_THRESHOLD_, which has every freed block given back to the system
    # and slows down attention over blocks.
    "distributed.nanny.pre-spawn-environ": dict.fromkeys(THREAD_VARIABLES, 1),
}


@dataclass(frozen=True)
class Tls:
    """Certificates for a `tls://` scheduler, as Dask's own commands take them."""

    ca_file: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def security(self, distributed: Any) -> Any:
        """Return Dask's security object, or None when no certificate was given."""
        given = {"ca_file": self.ca_file, "client_cert": self.cert, "client_key": self.key}
        paths = {f"tls_{name}": str(path) for name, path in given.items() if path is not None}
        for path in paths.values():
            if not Path(path).is_file():
                raise BadInput(f"There is no certificate file {path}.")
        return distributed.Security(require_encryption=True, **paths) if paths else None


class DaskCluster:
    """Does tasks on a Dask cluster: one started on this machine, or the one at `address`.

    Parameters
    ----------
    address : str
        "local" for processes of this machine, or a scheduler's, as in "tcp://host:8786".
    workers : int, optional
        How many processes to start for "local"; one for each core by default.
    tls : Tls, optional
        Certificates for a "tls://" address.
    memory : str, optional
        What each local worker may use, as in "2GB", before it is restarted.
    """

    def __init__(
        self,
        address: str = LOCAL,
        *,
        workers: int | None = None,
        tls: Tls | None = None,
        memory: str | None = None,
    ) -> None:
        if address != LOCAL and not address.startswith(("tcp://", "tls://")):
            raise BadInput(
                f"The cluster {address!r} is neither 'local' nor an address such as "
                "tcp://host:8786; `attnlimit cluster` says how to start one."
            )
        self.address, self.workers, self.memory = address, workers, memory
        self.tls = tls or Tls()

    def __enter__(self) -> DaskCluster:
        try:
            import distributed
        except ImportError:
            missing = "Clusters need Dask: run `pip install 'attnlimit[cluster]'`."
            raise MissingExtra(missing) from None
        self._distributed = distributed
        self._name, self._submitted = f"attnlimit-{uuid.uuid4().hex[:8]}", 0
        self._bundles: dict[Any, tuple[list[Task], Any]] = {}
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._next: list[Task] = []
        self._outcomes: deque[Outcome] = deque()
        self._seconds: deque[float] = deque([1.0], maxlen=RECENT)
        self._versions = tuple(versions().items())
        self._threads = 0
        with contextlib.ExitStack() as stack:
            log = logging.getLogger("distributed")  # what matters of it is said by the driver
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
            self.client = stack.enter_context(self._connect(stack))
            self._stack = stack.pop_all()
        served = self.client.scheduler_info()["services"]
        self._dashboard = f", {self.client.dashboard_link}" if "dashboard" in served else ""
        self._count()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bundles.clear()
        self._stack.close()

    @property
    def slots(self) -> int:
        """A bundle for each thread of the cluster, and one more waiting behind it."""
        if time.monotonic() - self._counted > SECONDS_BETWEEN_COUNTS:
            self._count()
        return QUEUED_PER_THREAD * max(self._threads, 1) * self._bundle

    @property
    def _bundle(self) -> int:
        """How many tasks, as long as the longest of the last few, fill a bundle."""
        return int(min(max(BUNDLE_SECONDS / max(self._seconds), 1), LARGEST_BUNDLE))

    @property
    def description(self) -> str:
        """The scheduler's address, how many workers it has, and where to watch it."""
        many = f"{self._threads} worker thread{'s' * (self._threads != 1)}"
        return f"Dask at {self.client.scheduler.address}, {many}{self._dashboard}"

    def submit(self, task: Task) -> None:
        """Hand a task to the scheduler, once its bundle is full."""
        self._next.append(task)
        if len(self._next) >= self._bundle:
            self._send(self._next)
            self._next = []

    def wait(self) -> Outcome:
        """Return the next task that ended, by itself or with its worker."""
        while not self._outcomes:
            if self._next:
                self._send(self._next)
                self._next = []
            self._receive(*self._bundles.pop(self._next_ended().key))
        outcome = self._outcomes.popleft()
        self._seconds.append(outcome.seconds)
        return outcome

    def _send(self, tasks: list[Task]) -> None:
        self._submitted += 1
        future = self.client.submit(
            compute_bundle,
            [task.to_bytes() for task in tasks],
            self._versions,
            key=(self._name, self._submitted),
            pure=False,
            retries=0,
        )
        self._bundles[future.key] = tasks, future  # Dask forgets a task nobody holds
        future.add_done_callback(self._ended.put)

    def _receive(self, tasks: list[Task], future: Any) -> None:
        try:
            done = future.result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError, OSError):
            raise ExecutorLost(f"The Dask scheduler at {self.address} went away.") from None
        except Exception as error:
            if len(tasks) > 1:  # whose fault it is shows when each is alone
                for task in tasks:
                    self._send([task])
            else:
                self._outcomes.append(Outcome(tasks[0], fault=self._fault(error)))
            return
        self._outcomes.extend(map(unpack, tasks, done))
        if left := tasks[len(done) :]:
            self._send(left)

    def _next_ended(self) -> Any:
        seen = time.monotonic()
        while True:
            try:
                return self._ended.get(timeout=SECONDS_BETWEEN_COUNTS)
            except queue.Empty:
                self._count()
            if self._threads or self.address != LOCAL:  # elsewhere, workers may yet be started
                seen = time.monotonic()
            elif time.monotonic() - seen > SECONDS_WITHOUT_WORKERS:
                raise ExecutorLost("The workers died and could not be replaced.")

    def _count(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # wait() says when it is gone
            self._threads = sum(self.client.nthreads().values())
        self._counted = time.monotonic()

    def _fault(self, error: Exception) -> Fault:
        if isinstance(error, ImportError):
            sentence = f"The workers lack something: {error}; `attnlimit cluster` checks them."
            return Fault("input", sentence)
        if not isinstance(error, self._distributed.KilledWorker):
            return Fault("error", f"{type(error).__name__}: {error}")
        # A scheduler that has lost several workers to one task is not looking at accidents.
        kind: FaultKind = "memory" if error.allowed_failures else "died"
        return Fault(kind, f"its worker {error.last_worker.address} died")

    def _connect(self, stack: contextlib.ExitStack) -> Any:
        if self.address == LOCAL:
            cluster = stack.enter_context(self._started_here(stack))
            return self._distributed.Client(cluster, set_as_default=False)
        security = self.tls.security(self._distributed)
        try:
            return self._distributed.Client(
                self.address, security=security, timeout=SECONDS_TO_CONNECT, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
            raise BadInput(
                f"No Dask scheduler answers at {self.address} ({reason}); "
                "`attnlimit cluster` says how to start one."
            ) from None

    def _started_here(self, stack: contextlib.ExitStack) -> Any:
        import dask

        stack.enter_context(dask.config.set(SETTINGS))
        with unheard():
            return self._distributed.LocalCluster(
                n_workers=self.workers or os.cpu_count() or 1,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=self.memory or "auto",
                silence_logs=logging.CRITICAL,
            )
