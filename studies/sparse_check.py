"""Theory against simulation at two sizes, over losses, priors, ridges, cosines and models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import BEYOND, comparable, where, with_z
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import LINEAR, panel
from attnlimit.reproduce.sparse_rows import finite, paired, sizes
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import readout
from attnlimit.sparse.training import simulate_readout

SETTINGS: list[dict[str, Any]] = [
    {"task": task, "alpha": alpha, "options": options}
    for task, alpha, options in (
        # length, signals, strength, prior | alpha | options
        ([10, 1, 5.0, 0.5], 0.5, {"cosine": 0.8, "ridge": 1e-2}),
        ([10, 1, 5.0, 0.5], 2.0, {"cosine": 0.8, "ridge": 1e-2}),
        ([10, 1, 5.0, 0.5], 2.0, {"cosine": 0.8, "ridge": 1e-4}),
        ([10, 1, 5.0, 0.5], 2.0, {"cosine": 0.8, "ridge": 1e-2, "loss": "square"}),
        ([8, 2, 3.0, 0.3], 2.0, {"cosine": 0.5, "sharpness": 2.0, "ridge": 1e-3}),
        ([5, 1, 2.0, 0.7], 1.5, {"cosine": -0.4, "ridge": 1e-1}),
        ([20, 3, 2.0, 0.5], 2.0, {"cosine": 0.95, "sharpness": 0.5, "loss": "hinge"}),
        ([6, 1, 4.0, 0.2], 3.0, {"cosine": 1.0, "sharpness": 4.0, "ridge": 1e-2}),
        ([6, 2, 3.0, 0.5], 0.6, {"cosine": 0.0, "ridge": 1e-3, "loss": "square"}),
        ([4, 1, 3.0, 0.5], 3.0, {"cosine": 0.6, "sharpness": 3.0, "ridge": 1.0}),
        ([10, 1, 5.0, 0.5], 3.0, {"model": "pooled", "ridge": 1e-3}),
        ([10, 2, 3.0, 0.4], 1.0, {"model": "pooled", "ridge": 1e-2, "loss": "hinge"}),
        ([3, 1, 4.0, 0.4], 2.0, {"model": "vectorized", "ridge": 1e-2}),
        ([3, 2, 2.0, 0.5], 1.5, {"model": "vectorized", "ridge": 1e-2, "loss": "square"}),
    )
]
QUANTITIES = {"test_error": "test error", "train_loss": "training loss"}


class TheoryCheck(Experiment):
    """Each setting at sizes d and 4 d, so that the finite-size bias can be told from noise."""

    name = "sparse-check"
    title = "Sparse tokens: theory against trained classifiers on 14 settings, at two sizes"

    def config(self, paper: bool) -> Config:
        return {
            "settings": SETTINGS,
            "dims": [250, 1000] if paper else [75, 300],
            "replicates": [160, 48] if paper else [32, 12],
        }

    def shards(self, config: Config) -> list[Shard]:
        return [
            {**setting, "setting": index, "dim": d, "replicates": r}
            for index, setting in enumerate(config["settings"])
            for d, r in zip(config["dims"], config["replicates"], strict=True)
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Test error and training loss, predicted beside measured."""
        task, alpha, options = SparseTask(*shard["task"]), shard["alpha"], shard["options"]
        result = readout(task, alpha, **options)
        drawn = simulate_readout(task, alpha, **options, **sizes(shard, seed))
        name = (
            f"{result.model}, {result.loss}, L {task.length}, R {task.signals}, "
            f"strength {task.strength:g}, prior {task.prior:g}, alpha {alpha:g}, "
            f"ridge {result.ridge:g}"
        )
        if result.model == "attention":
            name += f", cosine {result.cosine:g}, sharpness {result.sharpness:g}"
        labels = {"setting": shard["setting"], "name": name, "dim": shard["dim"]}
        return paired(labels, {name: getattr(result, name) for name in QUANTITIES}, drawn)

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return finite(curves, curves["dim"])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        both = extrapolated(config, curves)
        panels = []
        for quantity, label in QUANTITIES.items():
            part = where(both, quantity=quantity)
            x, ones = part["setting"] + 1, np.ones(len(part))
            ends = [0.5, len(part) + 0.5]
            series = (
                Series(x, part["z_large"], "points", f"d = {config['dims'][1]}", "d", ones),
                Series(x + 0.25, part["z_limit"], "points", "extrapolated in d", "limit", ones),
                Series(ends, [0, 0], "dotted", None, REFERENCE),
                *(Series(ends, [z, z], "dotted", None, REFERENCE) for z in (3, -3)),
            )
            y = "predicted above measured, z"
            panels.append(panel(label, series, y, "setting", **LINEAR, y_limits=(-5, 5)))
        return FigureSpec("Theory against trained classifiers, setting by setting", tuple(panels))

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        large = {"measured_large": "measured", "stderr_large": "stderr", "z_large": "z"}
        named = {"name": "setting", **large, "z_limit": "z extrapolated"}
        columns = ["name", "quantity", "predicted", *large, "z_limit"]
        return extrapolated(config, curves)[columns].rename(columns=named)

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """The larger size, as in the table: the smaller is there to tell its bias from noise."""
        return comparable(where(curves, dim=config["dims"][1]))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """How many comparisons pass, how the differences are spread, and whether they lean."""
        both, draws = extrapolated(config, curves), config["replicates"][1]
        within = {name: int((both[name].abs() < BEYOND).sum()) for name in ("z_large", "z_limit")}
        sentences = [
            f"at d = {config['dims'][1]}: {within['z_large']} of {len(both)} within 3 combined "
            f"errors; extrapolated to the limit from two sizes, {within['z_limit']}."
        ]
        for quantity in QUANTITIES:
            z = -where(both, quantity=quantity)["z_large"]  # what was measured, above
            chance = np.sqrt((draws - 1) / max(draws - 3, 1) / len(z))
            sentences.append(
                f"{quantity}: root mean square {np.sqrt((z**2).mean()):.2f} combined errors, mean "
                f"{z.mean():+.2f} (independent settings would give 0 +- {chance:.2f})."
            )
        return sentences


def extrapolated(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Each quantity at both sizes, and extrapolated to the limit by a bias of order 1/d."""
    small, large = config["dims"]
    factor = small / (large - small)
    keys = ["setting", "name", "quantity", "predicted"]
    weighed = with_z(curves).set_index(keys)
    left, right = (where(weighed, dim=dim)[["measured", "stderr", "z"]] for dim in (small, large))
    both = left.add_suffix("_small").join(right.add_suffix("_large")).reset_index()
    bias = (both["measured_small"] - both["measured_large"]) * factor
    error = np.hypot((1 + factor) * both["stderr_large"], factor * both["stderr_small"])
    both["z_limit"] = (both["predicted"] - both["measured_large"] + bias) / error
    return both


EXPERIMENT = TheoryCheck()
