"""Uniform convergence on a ball: the measured sup, its asymptotic constant and its bound."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.experiments.experiment import Config, Experiment, Shard
from attnlimit.experiments.groups import groups
from attnlimit.experiments.temperatures import grid
from attnlimit.heads import Head
from attnlimit.montecarlo.supremum import supremum_errors
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.theory import uniform_bound
from attnlimit.tokens import Sphere

TITLE = "Uniform convergence: largest error over a ball of queries, measured, predicted, bounded"


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "dim": 3,
        "radii": [1.0, 2.0, 4.0, 8.0],
        "n": grid(100, 100_000, 7) if paper else grid(100, 10_000, 5),
        "replicates": 100 if paper else 32,
        "block": 5 if paper else 8,
        "delta": 0.05,
    }


def _problem(config: Config) -> tuple[Head, Sphere]:
    return Head(np.eye(config["dim"])), Sphere(config["dim"])


def _shards(config: Config) -> list[Shard]:
    return [
        {
            "dim": config["dim"],
            "radius": radius,
            "n": config["n"],
            "draws": config["block"],
            "stream": block,
        }
        for radius in config["radii"]
        for block in range(config["replicates"] // config["block"])
    ]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    head, tokens = _problem(shard)
    n = np.asarray(shard["n"], dtype=np.int64)
    values, shortfalls = supremum_errors(head, tokens, shard["radius"], n, shard["draws"], seed)
    return pd.DataFrame(
        {
            "radius": shard["radius"],
            "n": np.tile(n, shard["draws"]),
            "sup": values.ravel(),
            "shortfall": shortfalls.ravel(),
        }
    )


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    head, tokens = _problem(config)
    parts = []
    for radius in config["radii"]:
        here = rows[rows["radius"] == radius].groupby("n")
        bound = uniform_bound(head, tokens, radius, config["n"], config["delta"])
        frame = pd.DataFrame(
            {
                "radius": radius,
                "n": np.asarray(config["n"]),
                "sup": here["sup"].mean().to_numpy(),
                "stderr": here["sup"].sem().to_numpy(),
                "largest": here["sup"].max().to_numpy(),
                "maximiser_error": here["shortfall"].mean().to_numpy(),
                "asymptotic": bound.constant / np.sqrt(bound.n),
                "constant": bound.constant,
                "bound": bound.bound,
                "violations": (
                    rows[rows["radius"] == radius]
                    .assign(
                        limit=lambda f, b=bound: f["n"].map(dict(zip(b.n, b.bound, strict=True)))
                    )
                    .eval("sup > limit")
                    .sum()
                ),
            }
        )
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for radius, part in groups(curves, "radius"):
        last = part.iloc[-1]
        root = np.sqrt(last["n"])
        slope = np.polyfit(np.log(part["n"]), np.log(part["sup"]), 1)[0]
        rows.append(
            {
                "R": radius,
                "n": int(last["n"]),
                "measured √n E sup": f"{root * last['sup']:.4g} ± {root * last['stderr']:.2g}",
                "C(R) = sup √tr C(x)": last["constant"],
                "bound · √n": root * last["bound"],
                "slope of E sup": slope,
                "draws above the bound": int(last["violations"]),
                "maximiser error": root * last["maximiser_error"],
            }
        )
    return pd.DataFrame(rows)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    against_n, constants = [], curves.groupby("radius").last()
    for radius, part in groups(curves, "radius"):
        label = f"R = {radius:g}"
        against_n += [
            Series(part["n"], part["asymptotic"], "line", None, label),
            Series(part["n"], part["bound"], "dashed", None, label),
            Series(part["n"], part["sup"], "points", label, label, error=2 * part["stderr"]),
        ]
    root = np.sqrt(constants["n"].to_numpy())
    panels = (
        Panel(
            "points: E sup measured; lines: C(R)/√n; dashed: bound, probability 95 %",
            "number of tokens n",
            "largest error over |x| ≤ R",
            tuple(against_n),
        ),
        Panel(
            f"constant C(R) at n = {config['n'][-1]}",
            "radius R of the ball of queries",
            "√n × largest error",
            (
                Series(constants.index, constants["constant"], "line", "C(R) predicted", "c"),
                Series(constants.index, root * constants["bound"], "dashed", "bound", "b"),
                Series(
                    constants.index,
                    root * constants["sup"],
                    "points",
                    "E sup measured",
                    "m",
                    error=2 * root * constants["stderr"],
                ),
            ),
        ),
    )
    caption = f"tokens on the sphere of R^{config['dim']}, A = V = I, {config['replicates']} draws"
    return FigureSpec(TITLE, panels, 2, caption)


EXPERIMENT = Experiment("uniform", TITLE, _config, _shards, _compute, _combine, _figure, _table)
