"""Tables and figures of both papers, by name: experiments on one base."""

from attnlimit.reproduce.experiment import EXPERIMENTS, Config, Experiment, Shard, execute, load
from attnlimit.reproduce.result import Result, run

__all__ = ["EXPERIMENTS", "Config", "Experiment", "Result", "Shard", "execute", "load", "run"]
