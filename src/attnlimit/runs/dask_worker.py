"""What must a Dask worker of this machine know before it works? That Ctrl-C is not for it."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ignore what a terminal sends to all its processes: the driver decides what is finished."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
