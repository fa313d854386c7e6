"""Tokens on the sphere: do errors fall as predicted when tokens are bounded?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec
from attnlimit.reproduce import temperatures
from attnlimit.reproduce.experiment import Config, Experiment, halve_draws

TITLE = "Tokens on the sphere: error of mean and covariance against n, exact reference"


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "tokens": "sphere",
        "dim": 50,
        "variance": None,
        "scales": [float(f"{value:.4g}") for value in np.geomspace(10, 1e5, 9 if paper else 5)],
        "n": temperatures.grid(10_000, 100_000, 8) if paper else temperatures.grid(1000, 10_000, 6),
        "replicates": 100 if paper else 60,
        "block": 5 if paper else 15,
    }


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    return temperatures.figure(config, curves, TITLE)


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    return [
        *temperatures.remarks(config, curves),
        "The mean is predicted by the two-query law at every scale; the covariance by its exact "
        "bias and a noise that is approximate where queries are frozen.",
    ]


EXPERIMENT = Experiment(
    name="sphere",
    title=TITLE,
    config=_config,
    shards=temperatures.shards,
    compute=temperatures.compute,
    combine=temperatures.combine,
    figure=_figure,
    table=temperatures.table,
    remarks=_remarks,
    split=halve_draws,
)
