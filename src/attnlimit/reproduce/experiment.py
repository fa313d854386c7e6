"""Experiments: their names, their base class, and running one in a run folder."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.picture import FigureSpec
from attnlimit.registry import Registry, find
from attnlimit.reproduce.compare import COMPARED, agreement, comparable, with_z
from attnlimit.reproduce.panels import DRAWN, pair, panel
from attnlimit.runs.folder import Config, RunFolder
from attnlimit.runs.resume import CannotStore, Progress, resumable_map

Shard = dict[str, Any]
TSC, STC = "arXiv 2512.10656", "arXiv 2509.25153"
EXPERIMENTS = {
    "gaussian": "temperatures:GAUSSIAN",
    "sphere": "temperatures:SPHERE",
    "bert": "bert:BERT",
    "window": "bert:WINDOW",
    "downstream": "downstream:EXPERIMENT",
    "tsne": "bert:TSNE",
    "uniform": "uniform:EXPERIMENT",
    "clt": "clt:EXPERIMENT",
    "hardmax": "hardmax:EXPERIMENT",
    "sparse-curves": "sparse_curves:EXPERIMENT",
    "sparse-alignment": "sparse_alignment:EXPERIMENT",
    "sparse-capacity": "sparse_capacity:EXPERIMENT",
    "sparse-separation": "sparse_known_signal:EXPERIMENT",
}
"""Module and instance of each experiment; its module is imported when it is loaded."""
SMALLEST = {"n": 1, "replicates": 2, "block": 1}
"""Smallest value of settings whose names end so."""


class Experiment(ABC):
    """One table and figure of a JSON-able configuration.

    A subclass states its name and settings, and gives `shards` and `compute`; the rest has
    defaults. Rows with the columns `predicted`, `measured` and `stderr` are compared and drawn by
    them, and by `prediction_error` and `skewness` where they have those. The module of a subclass
    has an instance of it, in a user's file called `EXPERIMENT`.
    """

    name: str
    """Its name on the command line."""
    title: str
    """One line for its page and its figure."""
    paper = ""
    figure_of_paper = ""
    """Paper, and its figure, table or theorem, that it reproduces."""
    minutes = float("nan")
    """Duration of the default sizes, on two cores."""
    settings: Config = {}
    """Every setting but the seed, for about two minutes on two cores."""
    paper_settings: Config = {}
    """Settings that are others at the paper's sizes."""
    takes_capture = False
    """Whether a capture's folder can replace its model and text."""

    def heading(self, config: Config) -> str:
        """Return the title for these settings."""
        return self.title

    def config(self, paper: bool) -> Config:
        """Return the settings, at the paper's sizes if `paper`."""
        return {**self.settings, **(self.paper_settings if paper else {})}

    @abstractmethod
    def shards(self, config: Config) -> Iterable[Shard]:
        """Cut the work into JSON-able dictionaries of a few seconds to a minute each.

        A shard may carry `"stream"`: shards of one stream get the same seed, which is how
        temperatures share their random numbers; without it the shard's index is its stream.
        """

    @abstractmethod
    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Return the shard's rows, which depend on nothing else."""

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Turn the rows of all shards, with their index in `shard`, into `curves.parquet`."""
        return rows.drop(columns="shard")

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Return curves with the errors by which they are compared; by default their own."""
        return curves

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """Rows whose predictions are compared with measurements; by default all that have both."""
        return comparable(curves)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Return the table that is printed; by default every measured row."""
        return with_z(curves.dropna(subset=["measured"]))

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        """Describe the figure; by default predictions and measurements against n."""
        only = panel(self.title, pair(curves, "n", "value"), "value")
        return FigureSpec(self.title, (only,), 1, DRAWN)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """Sentences under the table; by default the agreement with measurements."""
        compared = set(COMPARED) <= set(curves) and curves["measured"].notna().any()
        return [agreement(curves)] if compared else []

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        """Return the first sentence of the page; by default the distance of predictions."""
        both = self.compared(config, curves)
        both = None if both is None else both[both["measured"] != 0]
        if both is None or both.empty:
            return f"{self.title}."
        gap = (both["predicted"] / both["measured"] - 1).abs()
        return (
            f"Half of {len(both)} predictions are within {100 * gap.median():.2g} % of the "
            f"measured value, and nine of ten within {100 * gap.quantile(0.9):.2g} %."
        )

    @property
    def path(self) -> str:
        """Where workers find the instance: its module, or the user's file, and its name there."""
        module = type(self).__module__
        names = vars(sys.modules[module]).items()
        return f"{module}:{next(name for name, value in names if value is self)}"

    def configured(
        self, overrides: Mapping[str, Any] | None = None, *, paper: bool = False, seed: int = 0
    ) -> Config:
        """Return the full configuration, with some settings replaced by others of their kind."""
        config = self.config(paper)
        for key, value in (overrides or {}).items():
            if key not in config:
                close = get_close_matches(key, config, n=1)
                hint = (
                    f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(config))}."
                )
                raise BadInput(f"{self.name} has no setting {key!r}; {hint}")
            if not _alike(value, config[key]):
                raise BadInput(f"{key} must be like {config[key]!r}, got {value!r}.")
        config |= dict(overrides or {})
        self.check(config)
        return config | {"seed": seed}

    def check(self, config: Config) -> None:
        """Refuse settings that cannot be computed; by default counts that are too small."""
        for key, value in config.items():
            smallest = SMALLEST.get(key.rpartition("_")[2])
            for number in value if isinstance(value, list) else [value]:
                if smallest is not None and type(number) is int:
                    checks.count(number, key, smallest=smallest)


INSTALLED: Registry[Experiment] = Registry("attnlimit.experiments")
"""Experiments of installed packages: an entry point's value is the path of an instance."""


class DrawnExperiment(Experiment):
    """An experiment whose configuration has `replicates` draws, in blocks of `block`."""

    def blocks(self, config: Config) -> list[Shard]:
        """Return the draws and the stream of every block; work of one stream shares its draws."""
        draws, block = config["replicates"], config["block"]
        starts = range(0, draws, block)
        return [{"draws": min(block, draws - at), "stream": k} for k, at in enumerate(starts)]

    def drawn(self, config: Config, cases: Iterable[Shard]) -> list[Shard]:
        """Return a shard for every case and block, at all n."""
        blocks = self.blocks(config)
        return [{**case, "n": config["n"], **block} for case in cases for block in blocks]


def grid(low: int, high: int, count: int) -> list[int]:
    """Whole numbers from `low` to `high`, evenly spaced in their logarithm."""
    return [int(value) for value in np.unique(np.round(np.geomspace(low, high, count)))]


def _alike(value: Any, default: Any) -> bool:
    """Whether a value can replace a default; any can where that is None."""
    if isinstance(default, list) and isinstance(value, list):
        return bool(value) and all(
            any(_alike(entry, other) for other in default) for entry in value
        )
    whole_for_real = type(value) is int and type(default) is float
    return default is None or type(value) is type(default) or whole_for_real


def available() -> tuple[str, ...]:
    """Return the names of the papers' experiments and of those of installed packages."""
    return tuple(dict.fromkeys([*EXPERIMENTS, *INSTALLED.names()]))


def load(name: str) -> Experiment:
    """Return the experiment called `name`, or the one in the file of that name."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name in EXPERIMENTS:
        return cast(Experiment, find(f"{__package__}.{EXPERIMENTS[name]}"))
    study = Path("studies", f"{name.replace('-', '_')}.py")  # in the project's folder
    if study.is_file():
        return _from_file(study)
    if name not in INSTALLED:
        close = get_close_matches(name, available(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(available())}."
        raise BadInput(
            f"There is no experiment {name!r}; {hint} Your own is named by the path of its .py "
            "file."
        )
    return INSTALLED[name]


def _from_file(file: Path) -> Experiment:
    if not file.is_file():
        raise BadInput(f"There is no file {file}; give the path of an existing one.")
    try:
        experiment = find(f"{file.resolve()}:EXPERIMENT")
    except Exception as error:  # a user's file may raise anything
        raise BadInput(f"Cannot load {file}: {type(error).__name__}: {error}.") from error
    if not isinstance(experiment, Experiment) or experiment.name in EXPERIMENTS:
        raise BadInput(
            f"{file} must end with EXPERIMENT = YourClass(), a subclass of "
            "attnlimit.reproduce.Experiment whose name is not one of ours."
        )
    return experiment


def execute(
    experiment: Experiment,
    config: Config,
    root: Path,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> RunFolder:
    """Run an experiment in a folder under `root`, computing only the shards that are missing.

    Every shard draws from its own child of the configuration's seed, and shards are combined in
    order, so the result is the same for any executor and after any interruption.
    """
    folder = RunFolder.prepare(root, experiment.name, config)
    if folder.finished:
        return folder
    items = [
        {"experiment": experiment.path, "shard": shard}
        | {"seed": config["seed"], "stream": shard.get("stream", index)}
        for index, shard in enumerate(experiment.shards(config))
    ]
    frames = resumable_map(compute_shard, items, folder, executor=executor, progress=progress)
    numbered = [frame.assign(shard=index) for index, frame in enumerate(frames)]
    table = experiment.combine(config, pd.concat(numbered, ignore_index=True))
    try:
        folder.write_table(table)
    except OSError as error:
        raise CannotStore(f"Cannot write to {folder.path}: {error.strerror}.") from None
    return folder


def compute_shard(item: dict[str, Any]) -> pd.DataFrame:
    """Compute one shard of the experiment that an item names."""
    seed = np.random.SeedSequence(item["seed"], spawn_key=(item["stream"],))
    return find(item["experiment"]).compute(item["shard"], seed)
