"""Every table and figure of both papers and ours, by name: one file an experiment on one base."""

from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.registry import EXPERIMENTS, load
from attnlimit.reproduce.result import Result, run

__all__ = ["EXPERIMENTS", "Config", "Experiment", "Result", "Shard", "load", "run"]
