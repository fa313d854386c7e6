"""Critical temperature of keys on a sphere: exact law, limit laws and draws."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import agreement, groups, where, with_uncertainty, with_z
from attnlimit.reproduce.experiment import Config, DrawnExperiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.theory.low_temperature.sphere_regimes import LAWS, sphere_regimes
from attnlimit.tokens import Sphere

STATISTICS = {"participation": "participation E Σ p²", "error": "error of the output"}
CASE = ("statistic", "dim", "theta", "n")


class CriticalTemperature(DrawnExperiment):
    """Keys on spheres at multiples of the critical inverse temperature."""

    name = "critical-temperature"
    title = "Critical temperature on the sphere: exact law, limit laws and draws"

    def config(self, paper: bool) -> Config:
        return {
            "cases": [
                [3, [0.03, 0.1, 0.3, 1.0, 3.0, 10.0]],
                [10, [1.0, 2.0, 4.0, 8.0, 16.0, 50.0]],
                [50, [6.0, 12.0, 24.5, 50.0, 100.0, 200.0]],
            ],
            "n": [100, 1000, 10_000],
            "far": [10**6, 10**12],
            "replicates": 2000 if paper else 300,
            "block": 50,
        }

    def shards(self, config: Config) -> list[Shard]:
        return self.drawn(config, ({"case": case} for case in config["cases"]))

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Both statistics of every draw at every n and theta; the error squared."""
        (dim, theta), n = shard["case"], shard["n"]
        tokens = Sphere(dim)
        beta = sphere_regimes(tokens, n, theta).beta
        rows = []
        for child in seed.spawn(shard["draws"]):
            keys = tokens.sample(n[-1], np.random.default_rng(child))
            for j, size in enumerate(n):
                height = keys[:size, 0]
                p = np.exp(beta[:, j, None] * (height - height.max()))
                p /= p.sum(axis=1, keepdims=True)
                miss = ((p @ keys[:size] - np.eye(dim)[0]) ** 2).sum(axis=1)
                for i, ratio in enumerate(theta):
                    rows.append(("participation", dim, ratio, size, (p[i] ** 2).sum()))
                    rows.append(("error", dim, ratio, size, miss[i]))
        return pd.DataFrame(rows, columns=[*CASE, "value"])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Put the exact law and the limit laws beside what was measured."""
        n = [*config["n"], *config["far"]]
        laws = pd.concat([_predicted(dim, theta, n) for dim, theta in config["cases"]])
        drawn = rows.groupby(list(CASE), sort=False)["value"]
        result = pd.DataFrame({"measured": drawn.mean(), "stderr": drawn.sem()}).reset_index()
        error = result["statistic"] == "error"
        root = np.sqrt(result["measured"])
        result["stderr"] = result["stderr"].where(~error, result["stderr"] / (2 * root))
        result["measured"] = result["measured"].where(~error, root)
        return laws.merge(result, "left", list(CASE))

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """What was measured at the largest n, and how far limit laws are there and far beyond."""
        last, far = max(config["n"]), max(config["far"])
        here, beyond = where(curves, n=last), where(curves, n=far)
        gaps = {
            "limit / exact - 1": _off(here, "critical"),
            "adapted / exact - 1": _off(here, "adapted"),
            f"limit / exact - 1, n = {far:.0e}": _off(beyond, "critical"),
        }
        shown = pd.DataFrame(
            {
                "statistic": here["statistic"],
                "d": here["dim"],
                "θ": here["theta"],
                "regime": here["regime"],
                "n": here["n"],
                "measured": with_uncertainty(here),
                "exact": here["predicted"],
                "z": with_z(here)["z"],
            }
        )
        return shown.assign(**{name: off.to_numpy() for name, off in gaps.items()})

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        sentences = [agreement(curves, "Exact law")]
        drawn = curves[curves["n"].isin(config["n"]) & (curves["regime"] != "averaging")]
        for dim, part in groups(where(drawn, statistic="participation"), "dim"):
            limit, adapted = (_off(part, law).abs().max() for law in ("critical", "adapted"))
            sentences.append(
                f"In dimension {dim}, where few keys are heard, and at the n that were drawn: the "
                f"limit law of the participation is up to {limit:.1%} from the exact one, and up "
                f"to {adapted:.1%} with the exponent that n keys see."
            )
        return sentences

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        near = curves[curves["n"].isin(config["n"])]
        for statistic, name in STATISTICS.items():
            for dim, part in groups(where(near, statistic=statistic), "dim"):
                series = pairs(part, "n", "theta", lambda n: f"n = {n}")
                for n, some in groups(part, "n"):
                    series.append(Series(some["theta"], some["adapted"], "dotted", None, n))
                    if statistic == "error":
                        series.append(Series(some["theta"], some["critical"], "dashed", None, n))
                if statistic == "participation":  # which knows no n
                    limit = some["theta"], some["critical"]
                    series.append(Series(*limit, "dashed", "n → ∞", REFERENCE))
                limits = part["predicted"].min() / 2, part["predicted"].max() * 1.5
                panels.append(
                    panel(f"{statistic}, d = {dim}", series, name, "θ = β / β*", y_limits=limits)
                )
        caption = (
            "lines: exact law; dashed: critical law, n → ∞; dotted: with the exponent that n keys "
            f"see; points: measured, {config['replicates']} draws"
        )
        return FigureSpec(self.title, panels, len(config["cases"]), caption)


def _off(rows: pd.DataFrame, law: str) -> pd.Series[float]:
    return rows[law] / rows["predicted"] - 1


def _predicted(dim: int, theta: list[float], n: list[int]) -> pd.DataFrame:
    frame = sphere_regimes(Sphere(dim), n, theta).to_frame().assign(dim=dim)
    parts = []
    for statistic in STATISTICS:
        columns = {statistic: "predicted"} | {f"{law}_{statistic}": law for law in LAWS}
        kept = frame[["dim", "theta", "n", "regime", "beta", *columns]].rename(columns=columns)
        parts.append(kept.assign(statistic=statistic))
    return pd.concat(parts, ignore_index=True)


EXPERIMENT = CriticalTemperature()
