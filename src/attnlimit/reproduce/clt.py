"""Central limit: quantiles of the output and its distance to the normal, across horizon 1."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from attnlimit.checks import Array
from attnlimit.intervals import bootstrap, excess_kurtosis
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import (
    COMPARED,
    agreement,
    comparable,
    groups,
    where,
    with_uncertainty,
    with_z,
)
from attnlimit.reproduce.experiment import TSC, Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import LINEAR, panel, points
from attnlimit.simulate.independent import line_errors
from attnlimit.theory.two_query.gaussian import GaussianKeys
from attnlimit.theory.two_query.isotropic import joint_moment

LEVELS = np.arange(1, 100) / 100


class CentralLimit(DrawnExperiment):
    """Errors of the mean output, d = 1, over the law of the queries."""

    name = "clt"
    title = "Central limit: normality of the mean output against n, on both sides of the horizon 1"
    paper = TSC
    figure_of_paper = "theorem: rate of the moments"
    minutes = 1
    settings = {
        "horizons": [0.3, 0.6, 0.9, 1.2, 2.0],
        "n": grid(30, 10_000, 5),
        "replicates": 5000,
        "block": 500,
    }
    paper_settings = {"n": grid(30, 100_000, 6), "replicates": 20000}

    def shards(self, config: Config) -> list[Shard]:
        return self.drawn(config, [{"horizons": config["horizons"]}])

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Draw errors at every n; horizons share their draws."""
        n, horizons = np.asarray(shard["n"], dtype=np.int64), np.asarray(shard["horizons"])
        errors = line_errors(horizons, n, shard["draws"], seed)
        return pd.DataFrame(
            {
                "n": np.tile(np.repeat(n, len(horizons)), shard["draws"]),
                "error": errors.ravel(),
                "horizon": np.tile(horizons, shard["draws"] * len(n)),
            }
        )

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Quantiles and moments of sqrt(n) times the error, and their law."""
        parts = []
        rng = np.random.default_rng(config["seed"])
        counts = np.array(sorted(config["n"]))
        law = {H: np.sqrt(counts * integrated_variance(H, counts)) for H in config["horizons"]}
        for (H, n), part in groups(rows.sort_values(["horizon", "n"]), "horizon", "n"):
            values = part["error"].to_numpy() * np.sqrt(n)
            distance, distance_stderr = bootstrap(distance_to_normal, values, rng)
            fourth, deviation = float(excess_kurtosis(values)), values.std(ddof=1)
            columns = {
                "horizon": H,
                "n": n,
                "distance": distance,
                "distance_stderr": distance_stderr,
                "excess_kurtosis": fourth,
                "measured": deviation,
                "stderr": deviation * np.sqrt(max(fourth + 2, 0) / (4 * len(values))),
                "predicted": float(law[H][counts.searchsorted(n)]),
                "limit_deviation": limit_deviation(H),
                "level": LEVELS,
                "quantile": np.quantile(values, LEVELS),
                "normal_quantile": ndtri(LEVELS),
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        moments = with_z(_moments(curves))
        return pd.DataFrame(
            {
                "H": moments["horizon"],
                "n": moments["n"],
                "distance to normal": with_uncertainty(moments, "distance", "distance_stderr"),
                "sd of √n·error": with_uncertainty(moments),
                "predicted sd": moments["predicted"],
                "z": moments["z"],
                "n → ∞": moments["limit_deviation"],
                "excess kurtosis": moments["excess_kurtosis"],
            }
        )

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        last = _moments(curves).query("n == n.max()")
        near, far = last.iloc[0], last.iloc[-1]
        return (
            f"At n = {near['n']:.0f} the standard deviation of √n times the error is "
            f"{near['measured']:.3g} at horizon {near['horizon']:g} and {far['measured']:.3g} at "
            f"horizon {far['horizon']:g}: past 1 it keeps growing with n."
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        draws = config["replicates"]
        return [
            agreement(_moments(curves), "Standard deviation"),
            f"Normal values would show a distance of {noise_floor(draws):.4f} with {draws} draws.",
        ]

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        return comparable(_moments(curves)[["horizon", "n", *COMPARED]])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        first, last = config["n"][0], config["n"][-1]
        quantiles, distances, deviations = [], [], []
        for place, (H, part) in enumerate(groups(curves, "horizon")):
            label = f"H = {H:g}"
            largest = where(part, n=last)
            low, high = np.interp([0.25, 0.75], largest["level"], largest["quantile"])
            scaled = largest["quantile"] / ((high - low) / (2 * ndtri(0.75)))
            shown = np.unique(largest["normal_quantile"].searchsorted(np.linspace(-2.4, 2.3, 21)))
            normal = largest["normal_quantile"].iloc[shown]
            quantiles.append(Series(normal, scaled.iloc[shown], "points", label, label))
            moments = _moments(part)
            deviations.append(points(moments, label=label))
            deviations.append(Series(moments["n"], moments["predicted"], "line", None, label))
            if H < 1:
                deviations.append(
                    Series(moments["n"], moments["limit_deviation"], "dotted", None, label)
                )
            # bars side by side
            beside = moments.assign(n=moments["n"] * 1.08 ** (place - len(config["horizons"]) // 2))
            distances.append(points(beside, "n", "distance", "distance_stderr", label))
        quantiles.append(Series([-2.4, 2.4], [-2.4, 2.4], "dotted", "normal law", REFERENCE))
        floor = noise_floor(config["replicates"])
        distances.append(Series([first, last], [floor, floor], "dotted", "normal law", REFERENCE))
        title, x = f"quantiles at n = {last}, scaled by the quartiles", "normal quantile"
        spread = "√n × error: standard deviation (lines: predicted, dotted: n → ∞)"
        panels = (
            panel(title, quantiles, "quantile of the error", x, **LINEAR, y_limits=(-4, 4)),
            panel("Kolmogorov distance to normal", distances, "distance", y_scale="linear"),
            panel(spread, deviations, "standard deviation"),
        )
        caption = f"mean output over the law of the queries, d = 1, {config['replicates']} draws"
        return FigureSpec(self.title, panels, 3, caption)


def _moments(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each horizon and n; the others are quantiles."""
    return curves.drop_duplicates(["horizon", "n"], ignore_index=True)


def limit_deviation(H: float) -> float:
    """Standard deviation of sqrt(n) times the mean output over the law of the queries, d = 1.

    The influence of a token is then G(y) y / (1 + H^2), of variance (1 - H^4)^{-3/2}.
    """
    return float((1 - H**4) ** -0.75) if H < 1 else float("nan")


def integrated_variance(horizon: float, n: NDArray[np.int64]) -> Array:
    """Variance of the mean output over the law of the queries, for each n; one dimension.

    Scores are horizon x y for standard normal x and y, and queries are not among the keys.
    """
    keys = GaussianKeys(np.array([[horizon]]), np.ones((1, 1)), np.zeros(1))
    place = np.arange(0.2, 5.2, 0.4)  # queries of one sign; the others mirror them
    share = np.exp(-(place**2) / 2)
    share /= share.sum()
    nobody, total = np.empty((0, 1)), np.zeros(len(n))
    for i, z in enumerate(place):
        for j, other in enumerate(place[: i + 1]):
            for sign in (1, -1):
                tilts = horizon * np.array([[z], [sign * other]])
                weight = share[i] * share[j] * (1 if i == j else 2) / 2
                total += weight * joint_moment(keys, tilts, nobody, n)
    return total


def distance_to_normal(values: Array) -> float:
    """Kolmogorov distance to the normal law of the same median and interquartile range."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    standard = np.sort((values - middle) / ((high - low) / (2 * ndtri(0.75))))
    steps = np.arange(len(values) + 1) / len(values)
    normal = ndtr(standard)
    return float(max((steps[1:] - normal).max(), (normal - steps[:-1]).max()))


def noise_floor(replicates: int) -> float:
    """Mean Kolmogorov distance of normal values, with fitted quartiles."""
    rng = np.random.default_rng(0)
    return float(np.mean([distance_to_normal(rng.standard_normal(replicates)) for _ in range(200)]))


EXPERIMENT = CentralLimit()
