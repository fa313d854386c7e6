"""Run folders, resuming, and where the work is done."""

from attnlimit.runs.driver import Interrupted, execute
from attnlimit.runs.executor import Executor, InProcess, LocalProcesses, run_task
from attnlimit.runs.folder import FolderBusy, RunFolder, run_key

__all__ = [
    "Executor",
    "FolderBusy",
    "InProcess",
    "Interrupted",
    "LocalProcesses",
    "RunFolder",
    "execute",
    "run_key",
    "run_task",
]
