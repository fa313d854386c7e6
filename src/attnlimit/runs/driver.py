"""How is an experiment run, or resumed, so that neither order nor interruptions change a bit?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from attnlimit.errors import AttnlimitError
from attnlimit.experiments import Config, Experiment
from attnlimit.runs.executor import Executor, InProcess, Task
from attnlimit.runs.folder import RunFolder

Progress = Callable[[int, int], None]


class Interrupted(AttnlimitError):
    """The user stopped the run; what was finished is kept."""


def execute(
    experiment: Experiment,
    config: Config,
    root: Path,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    weights: str | None = None,
) -> RunFolder:
    """Run `experiment` under `root`, computing only the shards that are not there yet.

    Every shard draws from its own child of the configuration's seed, and the shards are combined
    in their own order, so the result is the same for any executor and after any interruption.
    """
    folder = RunFolder.prepare(root, experiment.name, config, weights)
    if folder.finished:
        return folder
    with folder.lock():
        tasks = _tasks(experiment, config)
        missing = [task for task in tasks if folder.read_shard(task[0]) is None]
        done = len(tasks) - len(missing)
        if progress is not None:
            progress(done, len(tasks))
        try:
            for _ in (executor or InProcess()).run(folder.path, experiment.name, missing):
                done += 1
                if progress is not None:
                    progress(done, len(tasks))
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped with {done} of {len(tasks)} shards done in {folder.path}; "
                "run the same command again to resume."
            ) from None
        curves = experiment.combine(config, _rows(folder, len(tasks)))
        folder.write_frame("curves.parquet", curves)
    return folder


def _tasks(experiment: Experiment, config: Config) -> list[Task]:
    shards = experiment.shards(config)
    return [
        (index, json.dumps(shard, allow_nan=False), config["seed"], shard.get("stream", index))
        for index, shard in enumerate(shards)
    ]


def _rows(folder: RunFolder, shards: int) -> pd.DataFrame:
    frames = []
    for index in range(shards):
        frame = folder.read_shard(index)
        if frame is None:
            raise AttnlimitError(
                f"Shard {index} of {folder.path} was damaged after it was written; run again."
            )
        frames.append(frame.assign(shard=index))
    return pd.concat(frames, ignore_index=True)
