"""Run folders, and a resumable map over any `concurrent.futures.Executor`."""

from attnlimit.runs.folder import FolderBusy as FolderBusy
from attnlimit.runs.folder import RunFolder as RunFolder
from attnlimit.runs.resume import CannotStore as CannotStore
from attnlimit.runs.resume import ExecutorLost as ExecutorLost
from attnlimit.runs.resume import ProcessPool as ProcessPool
from attnlimit.runs.resume import Progress as Progress
from attnlimit.runs.resume import ShardsFailed as ShardsFailed
from attnlimit.runs.resume import Status as Status
from attnlimit.runs.resume import resumable_map as resumable_map
