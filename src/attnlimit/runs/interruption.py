"""What does Ctrl-C do? Once: finish what is under way. Twice: stop at once. Nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any


class Interruption:
    """Listens for Ctrl-C inside a `with` block: `asked` tells of the first, the second raises."""

    def __init__(self, notice: Callable[[], None]) -> None:
        self.asked = False
        self._notice = notice
        self._before: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._notice()


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
