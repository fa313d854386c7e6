"""Tokens on the sphere: do errors fall as predicted when tokens are bounded?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.reproduce.experiment import Config, grid
from attnlimit.reproduce.temperatures import Temperatures
from attnlimit.tokens import Sphere


class SphereTokens(Temperatures):
    """The rate is 1/2 in the end, whatever the scale."""

    name = "sphere"
    title = "Tokens on the sphere: error of mean and covariance against n, exact reference"
    formula = "1/2"

    def config(self, paper: bool) -> Config:
        return {
            "dim": 50,
            "scales": [float(f"{value:.4g}") for value in np.geomspace(10, 1e5, 9 if paper else 5)],
            "n": grid(10_000, 100_000, 8) if paper else grid(1000, 10_000, 6),
            "replicates": 100 if paper else 60,
            "block": 5 if paper else 15,
        }

    def tokens(self, setting: Config) -> Sphere:
        return Sphere(setting["dim"])

    def limit(self, horizon: Array, statistic: str) -> Array:
        return np.full(np.shape(horizon), 0.5)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            *super().remarks(config, curves),
            "The mean is predicted by the two-query law at every scale, the covariance by its "
            "exact bias and the two-query law of squares.",
        ]


EXPERIMENT = SphereTokens()
