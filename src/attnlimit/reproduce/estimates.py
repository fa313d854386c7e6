"""What do draws say? A rate against n, and the standard error of any statistic of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve
from attnlimit.errors import BadInput
from attnlimit.montecarlo.fit import MIN_POINTS, MIN_REPLICATES
from attnlimit.runs.experiment import Config

BOOTSTRAP = 200
RESAMPLES = 1000


def check_rate(config: Config) -> None:
    """Refuse settings to which no rate can be fitted, before they are computed."""
    checks.token_counts(config["n"])
    if len(config["n"]) < MIN_POINTS:
        raise BadInput(
            f"n must have at least {MIN_POINTS} values, since a rate is fitted to them; got "
            f"{len(config['n'])}."
        )
    checks.count(config["replicates"], "replicates", smallest=MIN_REPLICATES)


def law_beside(curve: Curve, value: Array, error: Array) -> Curve:
    """Return what theory says, with its own error, at the n of a measured curve."""
    nothing = np.zeros(len(curve.n))
    return replace(curve, value=value, stderr=nothing, method="theory", numerical_error=error)


def rate(rows: pd.DataFrame, y: str = "measured") -> float:
    """Return the exponent with which a column falls with n, by least squares."""
    return float(-np.polyfit(np.log(rows["n"].to_numpy(float)), np.log(rows[y]), 1)[0])


def rate_stderr(rows: pd.DataFrame) -> float:
    """Standard error of the rate, points taken as independent (they may share draws)."""
    x = np.log(rows["n"].to_numpy(float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    relative = (rows["stderr"] / rows["measured"]).to_numpy()
    return float(np.sqrt((weights**2 * relative**2).sum()))


def with_stderr(
    statistic: Callable[[Array], float], values: Array, rng: np.random.Generator
) -> tuple[float, float]:
    """Return a statistic of the values, and its standard error by bootstrap."""
    again = [statistic(rng.choice(values, len(values))) for _ in range(BOOTSTRAP)]
    return statistic(values), float(np.std(again))


def means_again(values: Array, documents: np.ndarray) -> Array:
    """Means of the values over documents drawn again with replacement, (RESAMPLES,).

    The same documents are drawn for the same number of them, so what is made of several means,
    such as a rate, can be made of their draws.
    """
    _, of = np.unique(documents, return_inverse=True)
    sums, counts = np.bincount(of, values), np.bincount(of)
    chance = np.full(len(counts), 1 / len(counts))
    drawn = np.random.default_rng(0).multinomial(len(counts), chance, size=RESAMPLES)
    return np.asarray(drawn @ sums / (drawn @ counts))
