"""Gaussian tokens: do mean and covariance errors fall as predicted, across the horizon 1?"""

from __future__ import annotations

import numpy as np

from attnlimit.checks import Array
from attnlimit.curve import NORMS
from attnlimit.reproduce.experiment import Config, grid
from attnlimit.reproduce.temperatures import Temperatures
from attnlimit.theory.rates import norm_rate, rms_rate
from attnlimit.tokens import Gaussian


class GaussianTokens(Temperatures):
    """The rate is 1/2 up to the horizon 1, and falls past it."""

    name = "gaussian"
    title = "Gaussian tokens: error of mean and covariance against n, from diffuse to frozen heads"
    formula = "1/2, then (√(1/4+2/H²) − 1/2)/2"

    def config(self, paper: bool) -> Config:
        return {
            "dim": 50,
            "variance": 0.1,
            "scales": [float(f"{value:.4g}") for value in np.geomspace(0.05, 50, 12)],
            "n": grid(1000, 30000, 12) if paper else grid(500, 6000, 8),
            "replicates": 200 if paper else 100,
            "block": 20 if paper else 25,
        }

    def tokens(self, setting: Config) -> Gaussian:
        return Gaussian(dim=setting["dim"], variance=setting["variance"])

    def limit(self, horizon: Array, statistic: str) -> Array:
        return norm_rate(horizon) if statistic in NORMS else rms_rate(horizon)


EXPERIMENT = GaussianTokens()
