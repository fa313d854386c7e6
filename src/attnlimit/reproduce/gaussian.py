"""Gaussian tokens: do mean and covariance errors fall as predicted, across the horizon 1?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec
from attnlimit.reproduce import temperatures
from attnlimit.reproduce.experiment import Config, Experiment, halve_draws

TITLE = "Gaussian tokens: error of mean and covariance against n, from diffuse to frozen heads"


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "tokens": "gaussian",
        "dim": 50,
        "variance": 0.1,
        "scales": [float(f"{value:.4g}") for value in np.geomspace(0.05, 50, 12)],
        "n": temperatures.grid(1000, 30000, 12) if paper else temperatures.grid(500, 6000, 8),
        "replicates": 400 if paper else 100,
        "block": 20 if paper else 25,
    }


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    return temperatures.figure(config, curves, TITLE)


EXPERIMENT = Experiment(
    name="gaussian",
    title=TITLE,
    config=_config,
    shards=temperatures.shards,
    compute=temperatures.compute,
    combine=temperatures.combine,
    figure=_figure,
    table=temperatures.table,
    remarks=temperatures.remarks,
    split=halve_draws,
)
