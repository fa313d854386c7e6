"""Run folders, and a resumable map over any `concurrent.futures.Executor`."""

from attnlimit.runs.folder import FolderBusy, RunFolder
from attnlimit.runs.resume import (
    CannotStore,
    ExecutorLost,
    ProcessPool,
    Progress,
    ShardsFailed,
    Status,
    resumable_map,
)

__all__ = [
    "CannotStore",
    "ExecutorLost",
    "FolderBusy",
    "ProcessPool",
    "Progress",
    "RunFolder",
    "ShardsFailed",
    "Status",
    "resumable_map",
]
