"""What is one piece of work? Plain values that any transport can carry, and what came of it."""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.runs.experiment import find
from attnlimit.runs.record import versions
from attnlimit.tables import to_parquet
from attnlimit.threads import one_thread

FaultKind = Literal["input", "refused", "error", "memory", "died"]

# What torch says when it cannot allocate; it has no exception of its own for that on the CPU.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")

# A scheduler takes milliseconds for each task: quick ones go to it together, in bundles that
# take so long at most. A task of 20 seconds is a bundle of its own.
BUNDLE_SECONDS = 0.05


@dataclass(frozen=True)
class Task:
    """A shard, or a part of one, to compute.

    Draw r of a shard uses child r of its seed, so a part that begins at draw `first` is handed a
    seed that has given out `first` children already, and draws what the whole shard would have.
    """

    index: int
    experiment: str  # where it is, as in "package.module:EXPERIMENT"
    shard: str  # JSON
    entropy: int
    stream: int
    first: int = 0

    def to_bytes(self) -> bytes:
        """Return the task as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Task:
        """Return the task that `to_bytes` wrote."""
        return cls(**json.loads(content))

    def seed(self) -> np.random.SeedSequence:
        """Where the task's random numbers come from."""
        return np.random.SeedSequence(
            self.entropy, spawn_key=(self.stream,), n_children_spawned=self.first
        )


@dataclass(frozen=True)
class Fault:
    """Why a task gave no result.

    "input" is the user's to mend and stops the run, "refused" is an answer of this package that
    the same seed would give again, "memory" asks for a smaller piece, "died" means that the process
    ended without a word, "error" is anything else.
    """

    kind: FaultKind
    message: str
    trace: str = ""


@dataclass(frozen=True)
class Outcome:
    """A task with its rows, as parquet, or its fault."""

    task: Task
    content: bytes = b""
    seconds: float = 0.0
    fault: Fault | None = None


def compute(task: Task) -> Outcome:
    """Do a task in this process, on one thread; what it raises becomes a fault.

    One thread: the order of floating point sums, and so the last bit of a result, must not depend
    on how many cores there are. Cores are used by doing several tasks at once.
    """
    started = time.perf_counter()
    try:
        with one_thread():
            rows = find(task.experiment).compute(json.loads(task.shard), task.seed())
            content = to_parquet(rows)
    except Exception as error:
        return Outcome(task, seconds=time.perf_counter() - started, fault=_fault(error))
    return Outcome(task, content, time.perf_counter() - started)


def _fault(error: Exception) -> Fault:
    message = str(error).strip() or type(error).__name__
    if isinstance(error, (BadInput, MissingExtra)):
        return Fault("input", message)
    starved = isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in message for words in OUT_OF_MEMORY)
    )
    trace = "".join(traceback.format_exception(error))
    refused = isinstance(error, AttnlimitError)
    kind: FaultKind = "memory" if starved else "refused" if refused else "error"
    return Fault(kind, f"{type(error).__name__}: {message}", trace)


def pack(outcome: Outcome) -> bytes:
    """Return an outcome, without its task, as bytes: a line of JSON and the rows."""
    fault = None if outcome.fault is None else asdict(outcome.fault)
    head = json.dumps({"seconds": outcome.seconds, "fault": fault})
    return head.encode() + b"\n" + outcome.content


def unpack(task: Task, content: bytes) -> Outcome:
    """Return what `pack` packed."""
    head, _, rows = content.partition(b"\n")
    said = json.loads(head)
    fault = None if said["fault"] is None else Fault(**said["fault"])
    return Outcome(task, rows, said["seconds"], fault)


@lru_cache(maxsize=4)
def difference(expected: tuple[tuple[str, str], ...]) -> str:
    """Say in which versions this process differs from those `expected`; nothing if in none."""
    here = versions()
    return ", ".join(
        f"{name} {here.get(name)} instead of {wanted}"
        for name, wanted in expected
        if here.get(name) != wanted
    )


def compute_bundle(contents: list[bytes], expected: tuple[tuple[str, str], ...]) -> list[bytes]:
    """Do tasks on a worker that has the `expected` versions: bytes there, bytes back.

    Those that are not begun when the time of a bundle is over do not come back.
    """
    if differences := difference(expected):
        reason = f"A worker has other versions than this machine: {differences}; make them equal."
        refused = Outcome(Task.from_bytes(contents[0]), fault=Fault("input", reason))
        return [pack(refused)]
    started = time.perf_counter()
    done: list[bytes] = []
    for content in contents:
        if done and time.perf_counter() - started > BUNDLE_SECONDS:
            break
        done.append(pack(compute(Task.from_bytes(content))))
    return done
