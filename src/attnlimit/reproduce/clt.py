"""Is the output asymptotically normal? Quantiles and distance to the normal, across horizon 1."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from attnlimit.checks import Array
from attnlimit.montecarlo.independent import line_errors
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import COMPARED, agreement, comparable, said, with_z
from attnlimit.reproduce.estimates import with_stderr
from attnlimit.reproduce.experiment import Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import LINEAR, panel, points
from attnlimit.reproduce.rows import groups, where
from attnlimit.theory.pairs.finite.line import integrated_variance

LEVELS = 99


class CentralLimit(DrawnExperiment):
    """Errors of the mean output, d = 1, over the law of the queries."""

    name = "clt"
    title = "Central limit: normality of the mean output against n, on both sides of the horizon 1"

    def config(self, paper: bool) -> Config:
        return {
            "horizons": [0.3, 0.6, 0.9, 1.2, 2.0],
            "n": grid(30, 100_000, 6) if paper else grid(30, 10_000, 5),
            "replicates": 20000 if paper else 5000,
            "block": 500,
        }

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
        """Quantiles of sqrt(n) times the error, and what they say of the law."""
        parts = []
        rng = np.random.default_rng(config["seed"])
        levels = np.arange(1, LEVELS + 1) / (LEVELS + 1)
        counts = np.array(sorted(config["n"]))
        law = {
            (H, n): float(np.sqrt(n * variance))
            for H in config["horizons"]
            for n, variance in zip(counts.tolist(), integrated_variance(H, counts), strict=True)
        }
        for (H, n), part in groups(rows.sort_values(["horizon", "n"]), "horizon", "n"):
            values = part["error"].to_numpy() * np.sqrt(n)
            distance, distance_stderr = with_stderr(distance_to_normal, values, rng)
            fourth = ((values - values.mean()) ** 4).mean() / values.var() ** 2 - 3
            deviation = values.std(ddof=1)
            columns = {
                "horizon": H,
                "n": n,
                "distance": distance,
                "distance_stderr": distance_stderr,
                "excess_kurtosis": fourth,
                "measured": deviation,
                "stderr": deviation * np.sqrt(max(fourth + 2, 0) / (4 * len(values))),
                "predicted": law[H, n],
                "limit_deviation": limit_deviation(H),
                "level": levels,
                "quantile": np.quantile(values, levels),
                "normal_quantile": ndtri(levels),
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        one = with_z(_each(curves))
        return pd.DataFrame(
            {
                "H": one["horizon"],
                "n": one["n"],
                "distance to normal": said(one, "distance", "distance_stderr"),
                "sd of √n·error": said(one),
                "predicted sd": one["predicted"],
                "z": one["z"],
                "n → ∞": one["limit_deviation"],
                "excess kurtosis": one["excess_kurtosis"],
            }
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        draws = config["replicates"]
        return [
            agreement(_each(curves), "Standard deviation"),
            f"Normal values would show a distance of {noise_floor(draws):.4f} with {draws} draws.",
            "Past the horizon 1 there is no limiting standard deviation, and the law stays heavy.",
        ]

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """One row for each horizon and n; the others are quantiles."""
        return comparable(_each(curves)[["horizon", "n", *COMPARED]])

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
            one = part.groupby("n", as_index=False).first()
            deviations.append(points(one, "n", "measured", "stderr", label))
            deviations.append(Series(one["n"], one["predicted"], "line", None, label))
            if H < 1:
                deviations.append(Series(one["n"], one["limit_deviation"], "dotted", None, label))
            # bars side by side
            one["n"] = one["n"] * 1.08 ** (place - len(config["horizons"]) // 2)
            distances.append(points(one, "n", "distance", "distance_stderr", label))
        quantiles.append(Series([-2.4, 2.4], [-2.4, 2.4], "dotted", "normal law", REFERENCE))
        floor = noise_floor(config["replicates"])
        distances.append(Series([first, last], [floor, floor], "dotted", "normal law", REFERENCE))
        title, x = f"quantiles at n = {last}, scaled by the quartiles", "normal quantile"
        spread = "√n × error: standard deviation (lines: predicted, dotted: n → ∞)"
        sd = "standard deviation"
        panels = (
            panel(title, quantiles, "quantile of the error", x, **LINEAR, y_limits=(-4, 4)),
            panel("Kolmogorov distance to normal", distances, "distance", y_scale="linear"),
            panel(spread, deviations, sd),
        )
        caption = f"mean output over the law of the queries, d = 1, {config['replicates']} draws"
        return FigureSpec(self.title, panels, 3, caption)


def _each(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each horizon and n."""
    return curves.drop_duplicates(["horizon", "n"], ignore_index=True)


def limit_deviation(H: float) -> float:
    """Standard deviation of sqrt(n) times the mean output over the law of the queries, d = 1.

    The influence of a token is then G(y) y / (1 + H^2), of variance (1 - H^4)^{-3/2}.
    """
    return float((1 - H**4) ** -0.75) if H < 1 else float("nan")


def distance_to_normal(values: Array) -> float:
    """Kolmogorov distance to the normal law of the same median and interquartile range."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    standard = np.sort((values - middle) / ((high - low) / (2 * ndtri(0.75))))
    steps = np.arange(len(values) + 1) / len(values)
    normal = ndtr(standard)
    return float(max((steps[1:] - normal).max(), (normal - steps[:-1]).max()))


def noise_floor(replicates: int) -> float:
    """Kolmogorov distance that truly normal values show, on average, with fitted quartiles."""
    rng = np.random.default_rng(0)
    return float(np.mean([distance_to_normal(rng.standard_normal(replicates)) for _ in range(200)]))


EXPERIMENT = CentralLimit()
