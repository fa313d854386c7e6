"""Uniform convergence on a ball: the measured sup, its asymptotic constant and its bound."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.head import Head
from attnlimit.montecarlo.supremum import supremum_errors
from attnlimit.report.spec import FigureSpec, Series
from attnlimit.reproduce.compare import plus_minus
from attnlimit.reproduce.drawn import DrawnExperiment, grid
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.reproduce.rows import groups
from attnlimit.theory import uniform_bound
from attnlimit.tokens import Gaussian, Sphere, Tokens

CASE = ("tokens", "dim", "radius")


class Uniform(DrawnExperiment):
    """The largest error over a ball of queries."""

    name = "uniform"
    title = (
        "Uniform convergence: largest error over a ball of queries, measured, its law, its bound"
    )

    def config(self, paper: bool) -> Config:
        return {
            "cases": [["gaussian", 2, [0.5, 1.0, 1.5, 2.0]], ["sphere", 3, [1.0, 2.0, 4.0, 8.0]]],
            "n": grid(100, 100_000, 7) if paper else grid(100, 20_000, 6),
            "replicates": 100 if paper else 48,
            "block": 4,
            "delta": 0.05,
        }

    def shards(self, config: Config) -> list[Shard]:
        return [
            {"tokens": name, "dim": dim, "radius": radius, "n": config["n"], **block}
            for name, dim, radii in config["cases"]
            for radius in radii
            for block in self.blocks(config)
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Find the largest error in every draw."""
        problem = _problem(shard["tokens"], shard["dim"])
        n = np.asarray(shard["n"], dtype=np.int64)
        values, shortfalls = supremum_errors(*problem, shard["radius"], n, shard["draws"], seed)
        drawn = {"sup": values.ravel(), "shortfall": shortfalls.ravel()}
        frame = pd.DataFrame({"n": np.tile(n, shard["draws"])} | drawn)
        return frame.assign(**{key: shard[key] for key in CASE})

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Put the mean of the sup beside its constant and its bound."""
        parts = []
        for (name, dim, radius), here in groups(rows, *CASE):
            law = uniform_bound(*_problem(name, dim), radius, config["n"], config["delta"])
            by_n = here.groupby("n")
            above = here["sup"] > here["n"].map(dict(zip(law.n, law.bound, strict=True)))
            parts.append(
                pd.DataFrame(
                    {
                        "tokens": name,
                        "dim": dim,
                        "radius": radius,
                        "n": law.n,
                        "sup": by_n["sup"].mean().to_numpy(),
                        "stderr": by_n["sup"].sem().to_numpy(),
                        "largest": by_n["sup"].max().to_numpy(),
                        "maximiser_error": by_n["shortfall"].mean().to_numpy(),
                        "asymptotic": law.constant / np.sqrt(law.n),
                        "constant": law.constant,
                        "bound": np.where(law.trivial, np.nan, law.bound),
                        "violations": int(above.sum()),
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (name, dim, radius), part in groups(curves, *CASE):
            last = part.iloc[-1]
            root = np.sqrt(last["n"])
            rows.append(
                {
                    "tokens": f"{name}, d = {dim}",
                    "R": radius,
                    "measured √n E sup": plus_minus(root * last["sup"], root * last["stderr"]),
                    "C(R) = sup √tr C(x)": last["constant"],
                    "√n × bound": root * last["bound"],
                    "rate of E sup": -np.polyfit(np.log(part["n"]), np.log(part["sup"]), 1)[0],
                    "draws above the bound": int(last["violations"]),
                    "maximiser error %": 100 * last["maximiser_error"] / last["sup"],
                }
            )
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            f"Constants are those at n = {config['n'][-1]}. C(R) is the largest standard deviation "
            "of √n times the error at one query; the sup over the ball is a multiple of it.",
            "An empty bound says that n is too small for it: only the size of the outputs bounds "
            "it.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for (name, dim), here in groups(curves, "tokens", "dim"):
            series = []
            for radius, part in groups(here, "radius"):
                label = f"R = {radius:g}"
                series += [
                    Series(part["n"], part["asymptotic"], "line", None, label),
                    Series(part["n"], part["bound"], "dashed", None, label),
                    points(part, "n", "sup", label=label),
                ]
            last = here.groupby("radius", as_index=False).last()
            last[["bound", "sup", "stderr"]] *= np.sqrt(last[["n"]].to_numpy())
            radii, law = last["radius"], "C(R) = sup √tr C(x)"
            constants = (
                Series(radii, last["bound"], "dashed", "bound, 95 %", "bound"),
                Series(radii, last["constant"], "line", law, "law"),
                points(last, "radius", "sup", label="measured"),
            )
            panels += [
                panel(f"{name}, d = {dim}: largest error over |x| ≤ R", series, "E sup |Γₙ - Γ|"),
                panel(
                    f"{name}, d = {dim}: constants at n = {config['n'][-1]}",
                    constants,
                    "√n × largest error",
                    "radius R of the ball of queries",
                    x_scale="linear",
                ),
            ]
        caption = "points: measured; lines: C(R)/√n; dashed: bound, probability 95 %"
        return FigureSpec(self.title, tuple(panels), 2, caption)


def _problem(name: str, dim: int) -> tuple[Head, Tokens]:
    return Head(np.eye(dim)), Gaussian(dim=dim) if name == "gaussian" else Sphere(dim)


EXPERIMENT = Uniform()
