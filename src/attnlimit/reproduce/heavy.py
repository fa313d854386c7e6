"""Heavy tails: what happens past the horizon 1, when frozen, and without sub-Gaussianity?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import levy_stable

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.montecarlo.engine import prefix_outputs
from attnlimit.montecarlo.independent import integrated_errors
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.compare import plus_minus, with_z
from attnlimit.reproduce.drawn import DrawnExperiment, grid
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import DRAWN, TOKENS, pair, points
from attnlimit.reproduce.rows import groups, where
from attnlimit.theory import gaussian_law, pointwise_error
from attnlimit.tokens import Gaussian, Laplace

TAIL = 0.99
BOOTSTRAP = 200
LAPLACE_BLOCK = 500


class HeavyTails(DrawnExperiment):
    """Three parts: stable fluctuations, freezing, Laplace tokens; `parameter` is H, sigma or t."""

    name = "heavy"
    title = "Heavy tails: stable fluctuations past the horizon 1, freezing, and exponential tokens"

    def config(self, paper: bool) -> Config:
        return {
            "horizons": [1.5, 2.0, 3.0],
            "n": grid(1000, 1_000_000, 7) if paper else grid(1000, 100_000, 5),
            "replicates": 2000 if paper else 800,
            "block": 50,
            "sigmas": [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0],
            "frozen_n": [100, 10_000],
            "frozen_draws": 2000,
            "tilts": [0.2, 0.7, 1.5],
            "laplace_n": grid(100, 100_000, 7) if paper else grid(100, 30_000, 6),
            "laplace_draws": 4000 if paper else 2000,
        }

    def shards(self, config: Config) -> list[Shard]:
        stable = [
            {"kind": "stable", "parameters": [H], "n": config["n"], **block}
            for H in config["horizons"]
            for block in self.blocks(config)
        ]
        frozen = {"kind": "frozen", "parameters": config["sigmas"], "n": config["frozen_n"]}
        laplace = {"kind": "laplace", "parameters": config["tilts"], "n": config["laplace_n"]}
        blocks = self.blocks({"replicates": config["laplace_draws"], "block": LAPLACE_BLOCK})
        return [
            *stable,
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
                row["tail_ratio"], row["tail_ratio_stderr"] = tail_ratio(values)
            if kind == "frozen":
                row["predicted"] = float(gaussian_law(parameter, n).participation)
            if kind == "laplace":
                row["output"] = np.median(values)
                row["limit"], row["predicted"] = _laplace_law(parameter, n)
                values = (values - row["limit"]) ** 2
            row |= {"measured": values.mean(), "stderr": values.std(ddof=1) / np.sqrt(len(values))}
            parts.append(row)
        return pd.DataFrame(parts)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows: list[dict[str, Any]] = []

        def say(what: str, measured: str, predicted: str, z: float = np.nan) -> None:
            rows.append({"what": what, "measured": measured, "predicted": predicted, "z": z})

        for (kind, parameter), part in groups(with_z(curves), "kind", "parameter"):
            first, last = part.iloc[0], part.iloc[-1]
            if kind == "stable":
                rate = plus_minus(slope(part), slope_stderr(part))
                end = f"{1 / (1 + parameter**2):.3f} in the end"
                say(f"H = {parameter:g}: rate of E|error|", rate, end)
                say(
                    f"H = {parameter:g}: 99 % quantile over median of |error|, n = {last['n']}",
                    plus_minus(last["tail_ratio"], last["tail_ratio_stderr"]),
                    f"normal {stable_ratio(2.0):.2f}, stable of index 1+1/H² "
                    f"{stable_ratio(1 + 1 / parameter**2):.1f} in the end",
                )
            elif kind == "laplace" and parameter >= 1:
                say(
                    f"Laplace tokens, t = {parameter:g}/b: median output",
                    f"{first['output']:.3g} at n = {first['n']}, {last['output']:.3g} at "
                    f"n = {last['n']}",
                    "no limit: grows with log n",
                )
            else:
                for _, row in (part if kind == "frozen" else part.iloc[-1:]).iterrows():
                    what = f"σ = {parameter:g}, n = {row['n']}: E Σ p²"
                    if kind == "laplace":
                        what = f"Laplace tokens, t = {parameter:g}/b, n = {row['n']}: mean square"
                    measured = plus_minus(row["measured"], row["stderr"])
                    say(what, measured, f"{row['predicted']:.4g}", row["z"])
        return pd.DataFrame(rows)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        stable, frozen, errors, outputs = [], [], [], []
        for H, part in groups(where(curves, kind="stable"), "parameter"):
            label, middle = f"H = {H:g}", part.iloc[len(part) // 2]
            line = middle["measured"] * (part["n"] / middle["n"]) ** (-1 / (1 + H**2))
            law = f"n^(-1/(1+H²)), {label}"
            stable += [Series(part["n"], line, "line", law, label), points(part, group=label)]
        for n, part in groups(where(curves, kind="frozen"), "n"):
            cold = part.assign(ratio=part["parameter"] / np.sqrt(2 * np.log(n)))
            frozen += pair(cold, "ratio", f"n = {n}")
        frozen.append(Series([1, 1], [1e-4, 1], "dotted", "freezing", "edge"))
        for t, part in groups(where(curves, kind="laplace"), "parameter"):
            label = f"t = {t:g}/b"
            outputs.append(Series(part["n"], part["output"], "points", label, label))
            if t < 1:
                outputs.append(Series(part["n"], part["limit"], "line", None, label))
                errors += pair(part, "n", f"{label}, exact law", label)
        title = "past the horizon 1: E|mean error|, d = 1"
        squared, median = "mean squared error", "Laplace tokens: median output (lines: limit)"
        panels = (
            Panel(title, TOKENS, "expected error", tuple(stable)),
            Panel("freezing of the weights", "σ / √(2 log n)", "E Σ p²", tuple(frozen), "linear"),
            Panel(f"Laplace tokens: {squared}", TOKENS, squared, tuple(errors)),
            Panel(median, TOKENS, "output", tuple(outputs)),
        )
        return FigureSpec(self.title, panels, 2, DRAWN)


def _stable(
    horizons: Array, n: NDArray[np.int64], draws: int, seed: np.random.SeedSequence
) -> Array:
    """Sizes of the errors of the mean output."""
    head, tokens = Head([[horizons[0]]]), Gaussian(dim=1)
    return np.abs(integrated_errors(head, tokens, np.zeros(1), n, draws, seed)).ravel()


def _frozen(sigmas: Array, n: NDArray[np.int64], draws: int, seed: np.random.SeedSequence) -> Array:
    """Sums of squared weights."""
    found = []
    for child in seed.spawn(draws):
        drawn = np.random.default_rng(child).standard_normal(int(n[-1]))
        for size in n:
            keys = drawn[:size]
            for sigma in sigmas:
                weights = np.exp(sigma * (keys - keys.max()))
                found.append(float((weights**2).sum() / weights.sum() ** 2))
    return np.asarray(found)


def _laplace(tilts: Array, n: NDArray[np.int64], draws: int, seed: np.random.SeedSequence) -> Array:
    """Outputs themselves: where the limit does not exist there is nothing to subtract."""
    queries = torch.from_numpy(tilts[None, :, None]).float()
    parts = []
    for child in seed.spawn(draws):
        drawn = Laplace(1).sample(int(n[-1]), np.random.default_rng(child))
        keys = torch.from_numpy(drawn[None]).float()
        outputs = prefix_outputs(queries, keys, n.tolist(), [len(tilts)] * len(n))
        parts.append(torch.cat(list(outputs), dim=1)[0, :, 0].numpy())
    return np.concatenate(parts)


def _laplace_law(tilt: float, n: int) -> tuple[float, float]:
    """Return the limit of the output and its mean squared error, where there is a limit."""
    if tilt >= 1:
        return float("nan"), float("nan")
    law = pointwise_error(Head([[1.0]]), Laplace(1), [[tilt]], [int(n)])
    return float(Laplace(1).tilted_mean([[tilt]])[0, 0]), float(law.mse[0, 0])


def tail_ratio(values: Array) -> tuple[float, float]:
    """The 99 % quantile over the median, and its standard error by bootstrap."""
    rng = np.random.default_rng(0)

    def ratio(sample: Array) -> float:
        middle, high = np.quantile(sample, [0.5, TAIL])
        return float(high / middle)

    again = [ratio(rng.choice(values, len(values))) for _ in range(BOOTSTRAP)]
    return ratio(values), float(np.std(again))


def stable_ratio(index: float) -> float:
    """The same ratio for the size of a symmetric stable variable; index 2 is the normal law."""
    middle, high = levy_stable.ppf([0.75, (1 + TAIL) / 2], index, 0.0)
    return float(high / middle)


def slope(part: pd.DataFrame) -> float:
    """Rate of the mean against n."""
    return float(-np.polyfit(np.log(part["n"]), np.log(part["measured"]), 1)[0])


def slope_stderr(part: pd.DataFrame) -> float:
    """Standard error of the rate of the mean, points taken as independent (they share draws)."""
    x = np.log(part["n"].to_numpy(dtype=float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    relative = (part["stderr"] / part["measured"]).to_numpy()
    return float(np.sqrt((weights**2 * relative**2).sum()))


EXPERIMENT = HeavyTails()
