"""Heavy tails: errors past the horizon 1, frozen weights, and exponential tokens."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import levy_stable

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.intervals import bootstrap, skewness
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import (
    SKEWNESS,
    groups,
    where,
    with_uncertainty,
    with_z,
)
from attnlimit.reproduce.experiment import Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import pair, pairs, panel, points
from attnlimit.result import format_pm
from attnlimit.simulate.engine import prefix_outputs
from attnlimit.simulate.independent import line_errors
from attnlimit.theory.one_query.gaussian import gaussian_law
from attnlimit.theory.one_query.pointwise import pointwise_error
from attnlimit.tokens import Laplace

TAIL = 0.99
LAPLACE_BLOCK = 500


class HeavyTails(DrawnExperiment):
    """Three parts: stable fluctuations, freezing, Laplace tokens; `parameter` is H, sigma or t."""

    name = "heavy"
    title = "Heavy tails: stable fluctuations past the horizon 1, freezing, and exponential tokens"
    minutes = 1
    settings = {
        "horizons": [1.5, 2.0, 3.0],
        "n": grid(1000, 100_000, 5),
        "replicates": 800,
        "block": 50,
        "sigmas": [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0],
        "frozen_n": [100, 10_000],
        "frozen_draws": 2000,
        "tilts": [0.2, 0.7, 1.5],
        "laplace_n": grid(100, 30_000, 6),
        "laplace_draws": 2000,
    }
    paper_settings = {
        "n": grid(1000, 1_000_000, 7),
        "replicates": 2000,
        "laplace_n": grid(100, 100_000, 7),
        "laplace_draws": 4000,
    }

    def shards(self, config: Config) -> list[Shard]:
        stable = {"kind": "stable", "parameters": config["horizons"]}
        frozen = {"kind": "frozen", "parameters": config["sigmas"], "n": config["frozen_n"]}
        laplace = {"kind": "laplace", "parameters": config["tilts"], "n": config["laplace_n"]}
        blocks = self.blocks({"replicates": config["laplace_draws"], "block": LAPLACE_BLOCK})
        return [
            *self.drawn(config, [stable]),
            {**frozen, "draws": config["frozen_draws"]},
            *({**laplace, "draws": block["draws"]} for block in blocks),
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Draw values at every n and parameter, in that order."""
        parts = {"stable": _stable, "frozen": _frozen, "laplace": _laplace}
        n, parameters = np.asarray(shard["n"], dtype=np.int64), np.asarray(shard["parameters"])
        values = parts[shard["kind"]](parameters, n, shard["draws"], seed)
        return pd.DataFrame(
            {
                "kind": shard["kind"],
                "parameter": np.tile(parameters, shard["draws"] * len(n)),
                "n": np.tile(np.repeat(n, len(parameters)), shard["draws"]),
                "value": values,
            }
        )

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Means of the draws, beside the exact law where there is one."""
        parts = []
        for (kind, parameter, n), part in groups(rows, "kind", "parameter", "n"):
            values = part["value"].to_numpy()
            row = {"kind": kind, "parameter": parameter, "n": n, "draws": len(values)}
            if kind == "stable":
                tail = bootstrap(tail_ratio, values, np.random.default_rng(0))
                row["tail_ratio"], row["tail_ratio_stderr"] = tail
            if kind == "frozen":
                row["predicted"] = float(gaussian_law(parameter, n).participation)
            if kind == "laplace":
                row["output"] = np.median(values)
                row["limit"], row["predicted"] = _laplace_law(parameter, n)
                values = (values - row["limit"]) ** 2
            root = np.sqrt(len(values))
            row |= {"measured": values.mean(), "stderr": values.std(ddof=1) / root}
            row[SKEWNESS] = float(skewness(values) / root)
            parts.append(row)
        return pd.DataFrame(parts)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows: list[tuple[str, str, str, float]] = []
        for (kind, parameter), part in groups(with_z(curves), "kind", "parameter"):
            first, last = part.iloc[0], part.iloc[-1]
            if kind == "stable":
                name, end = f"H = {parameter:g}", f"{1 / (1 + parameter**2):.3f} in the end"
                rows.append((f"{name}: rate of E|error|", format_pm(*_rate(part)), end, np.nan))
                what = f"{name}: 99 % quantile over median of |error|, n = {last['n']}"
                tail = format_pm(last["tail_ratio"], last["tail_ratio_stderr"])
                normal, stable = stable_ratio(2.0), stable_ratio(1 + 1 / parameter**2)
                law = f"normal {normal:.2f}, stable of index 1+1/H² {stable:.1f} in the end"
                rows.append((what, tail, law, np.nan))
            elif kind == "laplace" and parameter >= 1:
                what = f"Laplace tokens, t = {parameter:g}/b: median output"
                ends = (f"{row['output']:.3g} at n = {row['n']}" for row in (first, last))
                rows.append((what, ", ".join(ends), "no limit: grows with log n", np.nan))
            else:
                name, what = f"σ = {parameter:g}", "E Σ p²"
                if kind == "laplace":
                    name, what = f"Laplace tokens, t = {parameter:g}/b", "mean square"
                    part = part.tail(1)
                columns = (part[key] for key in ("n", "predicted", "z"))
                for measured, n, predicted, z in zip(with_uncertainty(part), *columns, strict=True):
                    rows.append((f"{name}, n = {n}: {what}", measured, f"{predicted:.4g}", z))
        return pd.DataFrame(rows, columns=["what", "measured", "predicted", "z"])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        stable, errors, outputs = [], [], []
        for H, part in groups(where(curves, kind="stable"), "parameter"):
            label, middle = f"H = {H:g}", part.iloc[len(part) // 2]
            line = middle["measured"] * (part["n"] / middle["n"]) ** (-1 / (1 + H**2))
            law = f"n^(-1/(1+H²)), {label}"
            stable += [Series(part["n"], line, "line", law, label), points(part, group=label)]
        for t, part in groups(where(curves, kind="laplace"), "parameter"):
            label = f"t = {t:g}/b"
            outputs.append(Series(part["n"], part["output"], "points", label, label))
            if t < 1:
                outputs.append(Series(part["n"], part["limit"], "line", None, label))
                errors += pair(part, "n", label)
        cold = where(curves, kind="frozen")
        cold = cold.assign(ratio=cold["parameter"] / np.sqrt(2 * np.log(cold["n"])))
        edge = Series([1, 1], [1e-4, 1], "dotted", "freezing", REFERENCE)
        frozen = [*pairs(cold, "n", "ratio", "n = {}".format), edge]
        title, x = "freezing of the weights", "σ / √(2 log n)"
        squared, median = "mean squared error", "Laplace tokens: median output (lines: limit)"
        panels = (
            panel("past the horizon 1: E|mean error|, d = 1", stable, "expected error"),
            panel(title, frozen, "E Σ p²", x, x_scale="linear"),
            panel(f"Laplace tokens: {squared}", errors, squared),
            panel(median, outputs, "output"),
        )
        caption = (
            "Top left: points measured, lines the rate in the end, through the middle point. Top "
            "right and bottom left: lines the exact law, points measured. Bottom right: points the "
            "median of the draws, lines the limit where there is one (t < 1/b)"
        )
        return FigureSpec(self.title, panels, 2, caption)


def _rate(rows: pd.DataFrame) -> tuple[float, float]:
    """Rate and its standard error, points taken as independent (they share draws)."""
    x, y = np.log(rows[["n", "measured"]].to_numpy(float)).T
    weights = (rows["measured"] / rows["stderr"]).to_numpy(float)
    line, covariance = np.polyfit(x, y, 1, w=weights, cov="unscaled")
    return -float(line[0]), float(covariance[0, 0] ** 0.5)


def _stable(
    horizons: Array, n: NDArray[np.int64], draws: int, seed: np.random.SeedSequence
) -> Array:
    """Sizes of the errors of the mean output."""
    return np.abs(line_errors(horizons, n, draws, seed)).ravel()


def _frozen(sigmas: Array, n: NDArray[np.int64], draws: int, seed: np.random.SeedSequence) -> Array:
    """Sums of squared weights."""
    sums = []
    for child in seed.spawn(draws):
        drawn = np.random.default_rng(child).standard_normal(int(n[-1]))
        for keys in (drawn[:size] for size in n):
            weights = np.exp(sigmas[:, None] * (keys - keys.max()))
            sums.append((weights**2).sum(axis=1) / weights.sum(axis=1) ** 2)
    return np.concatenate(sums)


def _laplace(tilts: Array, n: NDArray[np.int64], draws: int, seed: np.random.SeedSequence) -> Array:
    """Outputs themselves: where the limit does not exist there is nothing to subtract."""
    queries = torch.from_numpy(tilts[None, :, None]).float()
    outputs = []
    for child in seed.spawn(draws):
        drawn = Laplace(1).sample(int(n[-1]), np.random.default_rng(child))
        keys = torch.from_numpy(drawn[None]).float()
        prefixes = prefix_outputs(queries, keys, n.tolist(), [len(tilts)] * len(n))
        outputs.append(torch.cat(list(prefixes), dim=1)[0, :, 0].numpy())
    return np.concatenate(outputs)


def _laplace_law(tilt: float, n: int) -> tuple[float, float]:
    """Return the limit of the output and its mean squared error, where there is a limit."""
    if tilt >= 1:
        return float("nan"), float("nan")
    law = pointwise_error(Head([[1.0]]), Laplace(1), [[tilt]], [int(n)])
    return float(Laplace(1).tilted_mean([[tilt]])[0, 0]), float(law.mse[0, 0])


def tail_ratio(values: Array) -> float:
    """The 99 % quantile over the median."""
    middle, high = np.quantile(values, [0.5, TAIL])
    return float(high / middle)


def stable_ratio(index: float) -> float:
    """The same ratio for the size of a symmetric stable variable; index 2 is the normal law."""
    middle, high = levy_stable.ppf([0.75, (1 + TAIL) / 2], index, 0.0)
    return float(high / middle)


EXPERIMENT = HeavyTails()
