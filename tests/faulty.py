"""Experiments that misbehave on request; importable by worker processes, unlike a test module."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec
from attnlimit.reproduce.experiment import Config, DrawnExperiment, Shard


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Draw a few numbers, leave a mark for each computation, and fail where told to."""
    if "marks" in shard:
        name = f"{shard['number']}.{shard.get('first', 0)}.{time.monotonic_ns()}"
        (Path(shard["marks"]) / name).touch()
    if shard["number"] in shard.get("raises", []):
        raise ZeroDivisionError("nothing to divide by")
    if shard["number"] in shard.get("kills", []):
        os.kill(os.getpid(), signal.SIGKILL)
    above = shard.get("kills_above", {"shards": [], "draws": 0})
    if shard["number"] in above["shards"] and shard["draws"] > above["draws"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if "megabytes" in shard:
        held = np.ones((shard["draws"], shard["megabytes"], 1 << 17))
        time.sleep(1.0)  # long enough for somebody to look at the memory
        del held
    time.sleep(shard.get("seconds", 0))
    draws = [np.random.default_rng(child).normal() for child in seed.spawn(shard["draws"])]
    return pd.DataFrame({"number": shard["number"], "value": draws})


class Faulty(DrawnExperiment):
    """Numbers drawn by shards that fail, die or starve on request."""

    name = "faulty"
    title = "Faults on request"

    def config(self, paper: bool) -> Config:
        return {"shards": 10} | json.loads(os.environ.get("FAULTY", "{}"))

    def shards(self, config: Config):
        """Lazily: a million of them must not sit in memory."""
        for index in range(config["shards"]):
            yield {**config.get("shard", {}), "number": index, "draws": config.get("draws", 4)}

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        return compute(shard, seed)

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.groupby("number", as_index=False)["value"].sum()

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return curves

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        return FigureSpec(self.title, (), 1, "")


EXPERIMENT = Faulty()
