"""What does a run need to know of its work? How it is cut, computed and put together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

Config = dict[str, Any]
Shard = dict[str, Any]
CURVES = "curves"
"""The one table of an experiment that names none."""


class Runnable(Protocol):
    """Work cut into shards, as functions of a JSON-able configuration; see `execute`.

    Nothing here is about figures or tables for people: any object with these members can be run.
    """

    @property
    def name(self) -> str:
        """How its run folders begin."""

    @property
    def path(self) -> str:
        """Where workers find it, as in "package.module:EXPERIMENT" or "/a/file.py:EXPERIMENT"."""

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The tables it leaves and their types; without any it leaves "curves", as it comes."""

    def shards(self, config: Config, /) -> Iterable[Shard]:
        """Cut the work into JSON-able dictionaries of a few seconds to a minute each.

        A shard may carry "stream": shards of one stream get the same seed; without it the shard's
        index is its stream.
        """

    def compute(self, shard: Shard, seed: np.random.SeedSequence, /) -> pd.DataFrame:
        """Return a shard's rows, which depend on nothing else."""

    def combine(
        self, config: Config, rows: pd.DataFrame, /
    ) -> pd.DataFrame | Mapping[str, pd.DataFrame]:
        """Turn the rows of all shards, in order, with their index in "shard", into the tables."""

    def split(self, shard: Shard, /) -> list[Shard]:
        """Cut a shard that found too little memory into smaller ones; none where it cannot be.

        Their rows, one after the other, are those of the shard.
        """


def whole(shard: Shard) -> list[Shard]:
    """Cut nothing: the `split` of shards that have no parts."""
    return []


def halve_draws(shard: Shard) -> list[Shard]:
    """Cut a shard of independent `draws` in two, bit for bit the same rows.

    For a `compute` that takes its random numbers only from `seed.spawn(draws)`, a child a draw: the
    second half begins at draw `first` of the same seed.
    """
    draws, first = shard.get("draws", 1), shard.get("first", 0)
    half = draws // 2
    if not half:
        return []
    return [
        shard | {"draws": half, "first": first},
        shard | {"draws": draws - half, "first": first + half},
    ]


def find(path: str) -> Runnable:
    """Import the experiment that a `path` names; its module may be a file, as in "/its.py:NAME"."""
    module, _, name = path.rpartition(":")
    where = _file(module) if module.endswith(".py") else import_module(module)
    found: Runnable = getattr(where, name)
    return found


class _Text(SourceFileLoader):
    """Reads a file as it is now: bytecode kept beside it may be a second older."""

    def path_stats(self, path: Any) -> Any:
        raise OSError


def _file(path: str) -> ModuleType:
    """Import a file as a module whose name is its path; again if its text has changed."""
    text = Path(path).read_bytes()
    module = sys.modules.get(path)
    if module is None or module.__dict__["__text__"] != text:
        loader = _Text(path, path)
        module = module_from_spec(ModuleSpec(path, loader, origin=path))
        module.__dict__["__text__"] = text
        sys.modules[path] = module  # before it runs: dataclasses look for it
        try:
            loader.exec_module(module)
        except BaseException:
            sys.modules.pop(path)
            raise
    return module
