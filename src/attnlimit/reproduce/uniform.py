"""Uniform convergence on a ball: the measured sup, its asymptotic constant and its bound."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.head import Head
from attnlimit.montecarlo.supremum import supremum_errors
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard, halve_draws
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.temperatures import grid
from attnlimit.theory import uniform_bound
from attnlimit.tokens import Gaussian, Sphere, Tokens

TITLE = "Uniform convergence: largest error over a ball of queries, measured, predicted, bounded"


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "cases": [["gaussian", 2, [0.5, 1.0, 1.5, 2.0]], ["sphere", 3, [1.0, 2.0, 4.0, 8.0]]],
        "n": grid(100, 100_000, 7) if paper else grid(100, 20_000, 6),
        "replicates": 100 if paper else 48,
        "block": 4,
        "delta": 0.05,
    }


def _problem(name: str, dim: int) -> tuple[Head, Tokens]:
    tokens: Tokens = Gaussian(dim=dim) if name == "gaussian" else Sphere(dim)
    return Head(np.eye(dim)), tokens


def _shards(config: Config) -> list[Shard]:
    return [
        {
            "tokens": name,
            "dim": dim,
            "radius": radius,
            "n": config["n"],
            "draws": config["block"],
            "stream": block,
        }
        for name, dim, radii in config["cases"]
        for radius in radii
        for block in range(config["replicates"] // config["block"])
    ]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    head, tokens = _problem(shard["tokens"], shard["dim"])
    n = np.asarray(shard["n"], dtype=np.int64)
    values, shortfalls = supremum_errors(head, tokens, shard["radius"], n, shard["draws"], seed)
    return pd.DataFrame(
        {
            "tokens": shard["tokens"],
            "dim": shard["dim"],
            "radius": shard["radius"],
            "n": np.tile(n, shard["draws"]),
            "sup": values.ravel(),
            "shortfall": shortfalls.ravel(),
        }
    )


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    parts = []
    for (name, dim, radius), here in groups(rows, "tokens", "dim", "radius"):
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


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (name, dim, radius), part in groups(curves, "tokens", "dim", "radius"):
        last = part.iloc[-1]
        root = np.sqrt(last["n"])
        slope = -np.polyfit(np.log(part["n"]), np.log(part["sup"]), 1)[0]
        rows.append(
            {
                "tokens": f"{name}, d = {dim}",
                "R": radius,
                "measured √n E sup": f"{root * last['sup']:.4g} ± {root * last['stderr']:.2g}",
                "C(R) = sup √tr C(x)": last["constant"],
                "√n × bound": root * last["bound"],
                "rate of E sup": slope,
                "draws above the bound": int(last["violations"]),
                "maximiser error %": 100 * last["maximiser_error"] / last["sup"],
            }
        )
    return pd.DataFrame(rows)


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    return [
        f"Constants are those at n = {config['n'][-1]}. C(R) is the largest standard deviation of "
        "√n times the error at one query; the sup over the ball is a multiple of it.",
        "An empty bound says that n is too small for it: only the size of the outputs bounds it.",
    ]


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    panels = []
    for (name, dim), here in groups(curves, "tokens", "dim"):
        series = []
        for radius, part in groups(here, "radius"):
            label = f"R = {radius:g}"
            series += [
                Series(part["n"], part["asymptotic"], "line", None, label),
                Series(part["n"], part["bound"], "dashed", None, label),
                Series(part["n"], part["sup"], "points", label, label, error=2 * part["stderr"]),
            ]
        last = here.groupby("radius").last()
        root = np.sqrt(last["n"].to_numpy())
        panels.append(
            Panel(
                f"{name}, d = {dim}: largest error over |x| ≤ R",
                "number of tokens n",
                "E sup |Γₙ - Γ|",
                tuple(series),
            )
        )
        panels.append(
            Panel(
                f"{name}, d = {dim}: constants at n = {config['n'][-1]}",
                "radius R of the ball of queries",
                "√n × largest error",
                (
                    Series(last.index, root * last["bound"], "dashed", "bound, 95 %", "bound"),
                    Series(last.index, last["constant"], "line", "C(R) = sup √tr C(x)", "law"),
                    Series(
                        last.index,
                        root * last["sup"],
                        "points",
                        "measured",
                        "measured",
                        error=2 * root * last["stderr"],
                    ),
                ),
                x_scale="linear",
            )
        )
    caption = "points: measured, 2 standard errors; lines: C(R)/√n; dashed: bound, probability 95 %"
    return FigureSpec(TITLE, tuple(panels), 2, caption)


EXPERIMENT = Experiment(
    "uniform", TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks, halve_draws
)
