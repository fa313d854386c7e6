"""Uniform convergence on a ball: the measured sup, its asymptotic constant and its bound."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.head import Head
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import groups, rate, with_uncertainty
from attnlimit.reproduce.experiment import TSC, Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import panel, points
from attnlimit.simulate.independent import supremum_errors
from attnlimit.theory.uniform.uniform import uniform_bound
from attnlimit.tokens import Gaussian, Sphere, Tokens

CASE = ["tokens", "dim", "radius"]
LAW = "C(R) = sup √tr C(x)"


class Uniform(DrawnExperiment):
    """The largest error over a ball of queries."""

    name = "uniform"
    title = (
        "Uniform convergence: largest error over a ball of queries, measured, its law, its bound"
    )
    paper = TSC
    figure_of_paper = "theorem: uniform convergence"
    minutes = 2
    settings = {
        "cases": [["gaussian", 2, [0.5, 1.0, 1.5, 2.0]], ["sphere", 3, [1.0, 2.0, 4.0, 8.0]]],
        "n": grid(100, 20_000, 6),
        "replicates": 48,
        "block": 4,
        "delta": 0.05,
    }
    paper_settings = {"n": grid(100, 100_000, 7), "replicates": 100}

    def shards(self, config: Config) -> list[Shard]:
        cases = ((name, dim, R) for name, dim, radii in config["cases"] for R in radii)
        return self.drawn(config, (dict(zip(CASE, case, strict=True)) for case in cases))

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
            above = here["sup"] > here["n"].map(dict(zip(law.n, law.bound, strict=True)))
            part = here.groupby([*CASE, "n"], as_index=False).agg(
                sup=("sup", "mean"),
                stderr=("sup", "sem"),
                largest=("sup", "max"),
                maximiser_error=("shortfall", "mean"),
            )
            part["asymptotic"] = law.constant / np.sqrt(law.n)
            part["constant"] = law.constant
            part["bound"] = np.where(law.trivial, np.nan, law.bound)
            part["violations"] = int(above.sum())
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        last = constants(curves)
        return pd.DataFrame(
            {
                "tokens": last["tokens"] + ", d = " + last["dim"].astype(str),
                "R": last["radius"],
                "measured √n E sup": with_uncertainty(last, "sup"),
                LAW: last["constant"],
                "√n × bound": last["bound"],
                "rate of E sup": [rate(part, "sup") for _, part in groups(curves, *CASE)],
                "draws above the bound": last["violations"],
                "maximiser error %": last["maximiser_percent"],
            }
        )

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        above = int(constants(curves)["violations"].sum())
        return (
            f"The bound on the largest error over a ball of queries is exceeded in {above} draws."
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            f"Constants are those at n = {config['n'][-1]}. C(R) is the largest standard deviation "
            "of √n times the error at one query; the sup over the ball is a multiple of it.",
            "Where the bound is empty n is too small for it: only the size of the outputs bounds "
            "it.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for (tokens, dim), here in groups(curves, "tokens", "dim"):
            series, name = [], f"{tokens.replace('gaussian', 'Gaussian')}, d = {dim}"
            for radius, part in groups(here, "radius"):
                label = f"R = {radius:g}"
                series += [
                    Series(part["n"], part["asymptotic"], "line", None, label),
                    Series(part["n"], part["bound"], "dashed", None, label),
                    points(part, "n", "sup", label=label),
                ]
            last = constants(here)
            multiples = (
                Series(last["radius"], last["bound"], "dashed", "bound, 95 %", REFERENCE),
                Series(last["radius"], last["constant"], "line", LAW, "constant"),
                points(last, "radius", "sup", label="measured", group="constant"),
            )
            title, x = f"{name}: constants at n = {config['n'][-1]}", "radius R of the ball"
            panels += [
                panel(f"{name}: largest error over |x| ≤ R", series, "E sup |Γₙ - Γ|"),
                panel(title, multiples, "√n × largest error", x, x_scale="linear"),
            ]
        caption = "points: measured; lines: C(R)/√n; dashed: bound, probability 95 %"
        return FigureSpec(self.title, panels, 2, caption)


def constants(curves: pd.DataFrame) -> pd.DataFrame:
    """Errors at the last n of every case, times sqrt(n)."""
    last = curves.groupby(CASE, sort=False).tail(1).reset_index(drop=True)
    last["maximiser_percent"] = 100 * last["maximiser_error"] / last["sup"]
    last[["bound", "sup", "stderr"]] *= np.sqrt(last[["n"]].to_numpy())
    return last


def _problem(name: str, dim: int) -> tuple[Head, Tokens]:
    return Head(np.eye(dim)), Gaussian(dim=dim) if name == "gaussian" else Sphere(dim)


EXPERIMENT = Uniform()
