"""How does a long run look while it runs? A bar with speed, failures and time left, and news."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import TextColumn

from attnlimit.cli.show import bar
from attnlimit.runs import Status

SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def run_view(title: str, shown: bool = True) -> Iterator[Callable[[Status], None]]:
    """Yield a function of a run's status that shows it on stderr.

    On a terminal a bar moves; in a log a line is written every half minute. News, such as a
    shard that is tried again, gets a line of its own either way; nothing is said if not `shown`.
    """
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    speed_and_failures = (
        TextColumn("{task.fields[speed]}"),
        TextColumn("[red]{task.fields[failures]}"),
    )
    with bar(screen, shown and screen.is_terminal, *speed_and_failures) as moving:
        task = moving.add_task(title, total=None, speed="", failures="")
        pace = _Pace()
        where, said = "", time.monotonic()

        def show(status: Status) -> None:
            nonlocal where, said
            if not shown:
                return
            if status.where.split(",")[0] != where.split(",")[0]:
                screen.print(f"{title}: {status.where}", markup=False)
            where = status.where
            if status.message:
                screen.print(f"{title}: {status.message}", markup=False)
            speed, failures = pace.of(status.done), _failures(status)
            moving.update(
                task,
                completed=status.done,
                total=status.total,
                speed=speed,
                failures=failures,
            )
            if not screen.is_terminal and time.monotonic() - said > SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                screen.print(
                    f"{title}: {status.done} of {status.total} shards {speed} {failures}".rstrip(),
                    markup=False,
                )

        yield show


class _Pace:
    """Shards a second since the first report, by a clock that cannot be set back."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._first = 0

    def of(self, done: int) -> str:
        if self._began is None or done < self._first:
            self._began, self._first = time.monotonic(), done
        seconds = time.monotonic() - self._began
        if done == self._first or not seconds:
            return ""
        each = seconds / (done - self._first)
        return f"{each:.1f} s/shard" if each > 1 else f"{1 / each:.0f} shards/s"


def _failures(status: Status) -> str:
    parts = []
    if status.failures:
        parts.append(f"{status.failures} failed")
    if status.set_aside:
        parts.append(f"{status.set_aside} set aside")
    return ", ".join(parts)
