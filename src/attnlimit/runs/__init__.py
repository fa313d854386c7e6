"""Run folders, resuming, and where the work is done."""

from attnlimit.errors import Interrupted
from attnlimit.runs.cluster import DaskCluster, Tls
from attnlimit.runs.driver import CannotStore, ShardsSetAside, Status, execute
from attnlimit.runs.executor import Executor, ExecutorLost, InProcess
from attnlimit.runs.folder import FolderBusy, RunFolder, run_key
from attnlimit.runs.processes import LocalProcesses

__all__ = [
    "CannotStore",
    "DaskCluster",
    "Executor",
    "ExecutorLost",
    "FolderBusy",
    "InProcess",
    "Interrupted",
    "LocalProcesses",
    "RunFolder",
    "ShardsSetAside",
    "Status",
    "Tls",
    "execute",
    "run_key",
]
