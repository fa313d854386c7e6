"""Is the output asymptotically normal? Quantiles and distance to the normal, across horizon 1."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.montecarlo.independent import integrated_errors
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard, halve_draws
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.temperatures import grid
from attnlimit.tokens import Gaussian

TITLE = "Central limit: normality of the mean output against n, on both sides of the horizon 1"
LEVELS = 99
BOOTSTRAP = 200


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "horizons": [0.3, 0.6, 0.9, 1.2, 2.0],
        "n": grid(30, 100_000, 6) if paper else grid(30, 10_000, 5),
        "replicates": 20000 if paper else 5000,
        "block": 500,
    }


def _shards(config: Config) -> list[Shard]:
    return [
        {"horizon": H, "n": config["n"], "draws": config["block"], "stream": block}
        for H in config["horizons"]
        for block in range(config["replicates"] // config["block"])
    ]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    n = np.asarray(shard["n"], dtype=np.int64)
    head, tokens = Head([[shard["horizon"]]]), Gaussian(dim=1)
    errors = integrated_errors(head, tokens, np.zeros(1), n, shard["draws"], seed)[..., 0]
    return pd.DataFrame(
        {
            "horizon": shard["horizon"],
            "n": np.tile(n, shard["draws"]),
            "error": errors.ravel(),
        }
    )


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


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    parts = []
    rng = np.random.default_rng(config["seed"])
    levels = np.arange(1, LEVELS + 1) / (LEVELS + 1)
    for (H, n), part in groups(rows, "horizon", "n"):
        values = part["error"].to_numpy() * np.sqrt(n)
        again = [distance_to_normal(rng.choice(values, len(values))) for _ in range(BOOTSTRAP)]
        fourth = ((values - values.mean()) ** 4).mean() / values.var() ** 2 - 3
        parts.append(
            pd.DataFrame(
                {
                    "horizon": H,
                    "n": n,
                    "distance": distance_to_normal(values),
                    "distance_stderr": np.std(again),
                    "excess_kurtosis": fourth,
                    "deviation": values.std(ddof=1),
                    "deviation_stderr": values.std(ddof=1)
                    * np.sqrt(max(fourth + 2, 0) / (4 * len(values))),
                    "predicted_deviation": limit_deviation(H),
                    "level": levels,
                    "quantile": np.quantile(values, levels),
                    "normal_quantile": ndtri(levels),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def noise_floor(replicates: int) -> float:
    """Kolmogorov distance that truly normal values show, on average, with fitted quartiles."""
    rng = np.random.default_rng(0)
    return float(np.mean([distance_to_normal(rng.standard_normal(replicates)) for _ in range(200)]))


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (H, n), part in groups(curves, "horizon", "n"):
        first = part.iloc[0]
        rows.append(
            {
                "H": H,
                "n": n,
                "distance to normal": f"{first['distance']:.4f} ± {first['distance_stderr']:.4f}",
                "sd of √n·error": f"{first['deviation']:.4g} ± {first['deviation_stderr']:.1g}",
                "predicted sd, n → ∞": first["predicted_deviation"],
                "excess kurtosis": first["excess_kurtosis"],
            }
        )
    return pd.DataFrame(rows)


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    floor = noise_floor(config["replicates"])
    return [
        f"Normal values would show a distance of {floor:.4f} with {config['replicates']} draws.",
        "Past the horizon 1 there is no limiting standard deviation, and the law stays heavy.",
    ]


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    largest = curves[curves["n"] == config["n"][-1]]
    quantiles, distances, deviations = [], [], []
    for H, part in groups(largest, "horizon"):
        spread = np.interp([0.25, 0.75], part["level"], part["quantile"])
        unit = (spread[1] - spread[0]) / (2 * ndtri(0.75))
        quantiles.append(
            Series(
                part["normal_quantile"], part["quantile"] / unit, "points", f"H = {H:g}", f"{H:g}"
            )
        )
    quantiles.append(Series([-2.4, 2.4], [-2.4, 2.4], "dotted", "normal", "normal"))
    for place, (H, part) in enumerate(groups(curves, "horizon")):
        one = part.groupby("n").first().reset_index()
        label = f"H = {H:g}"
        beside = one["n"] * 1.08 ** (place - len(config["horizons"]) // 2)  # bars side by side
        distances.append(
            Series(
                beside, one["distance"], "points", label, label, error=2 * one["distance_stderr"]
            )
        )
        deviations.append(
            Series(
                one["n"],
                one["deviation"],
                "points",
                label,
                label,
                error=2 * one["deviation_stderr"],
            )
        )
        if H < 1:
            deviations.append(Series(one["n"], one["predicted_deviation"], "line", None, label))
    floor = noise_floor(config["replicates"])
    ends = [config["n"][0], config["n"][-1]]
    distances.append(Series(ends, [floor, floor], "dotted", "normal values", "floor"))
    panels = (
        Panel(
            f"quantiles at n = {config['n'][-1]}, scaled by the quartiles",
            "normal quantile",
            "quantile of the error",
            tuple(quantiles),
            "linear",
            "linear",
            y_limits=(-4, 4),
        ),
        Panel(
            "Kolmogorov distance to the normal law",
            "number of tokens n",
            "distance",
            tuple(distances),
            y_scale="linear",
        ),
        Panel(
            "√n × error: standard deviation (lines: predicted limit)",
            "number of tokens n",
            "standard deviation",
            tuple(deviations),
        ),
    )
    caption = f"mean output over the law of the queries, d = 1, {config['replicates']} draws"
    return FigureSpec(TITLE, panels, 3, caption)


EXPERIMENT = Experiment(
    "clt", TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks, halve_draws
)
