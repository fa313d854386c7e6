"""What does a worker of a cluster do? A few tasks at a time, if its versions are the driver's."""

from __future__ import annotations

import time
from functools import lru_cache

from attnlimit.runs.task import Fault, Outcome, Task, compute, pack
from attnlimit.runs.versions import versions

# A scheduler takes milliseconds for each task: quick ones go to it together, in bundles that
# take so long at most. A task of 20 seconds is a bundle of its own.
BUNDLE_SECONDS = 0.05


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
