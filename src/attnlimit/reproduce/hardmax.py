"""The hardmax regime: how slowly does the best of n tokens approach its limit?"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard, halve_draws
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.temperatures import grid
from attnlimit.theory import best_temperature, hardmax_error, schedule_error
from attnlimit.tokens import Cube, Gaussian, Sphere, Tokens

TITLE = "Hardmax: the logarithmic rate, and the best temperature for each n"
SCHEDULES = {"log": "λ = c log n", "sqrt-log": "λ = c √log n"}


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "cases": [
            ["gaussian", 50],
            ["sphere", 50],
            ["cube", 50],
            ["gaussian", 3],
            ["sphere", 3],
            ["cube", 3],
        ],
        "schedule_dim": 50,
        "n": grid(10, 100_000, 9) if paper else grid(10, 20_000, 7),
        "far": grid(10, 10**12, 23),
        "replicates": 1000 if paper else 400,
        "block": 50,
    }


def _problem(name: str, dim: int) -> tuple[Head, Tokens, Array]:
    tokens: dict[str, Tokens] = {
        "gaussian": Gaussian(dim=dim),
        "sphere": Sphere(dim),
        "cube": Cube(dim),
    }
    query = np.linspace(1.0, 2.0, dim)
    return Head(np.eye(dim)), tokens[name], query / np.linalg.norm(query)


def _shards(config: Config) -> list[Shard]:
    blocks = range(config["replicates"] // config["block"])
    work: list[Shard] = [
        {"kind": "hardmax", "case": case, "n": config["n"], "draws": config["block"], "stream": b}
        for case in config["cases"]
        for b in blocks
    ]
    case = ["sphere", config["schedule_dim"]]
    work += [
        {"kind": "schedule", "case": case, "n": config["n"], "draws": config["block"], "stream": b}
        for b in blocks
    ]
    return work


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    head, tokens, query = _problem(*shard["case"])
    n = np.asarray(shard["n"], dtype=np.int64)
    if shard["kind"] == "hardmax":
        sharpness = {"hardmax": np.full(len(n), np.inf)}
    else:
        sharpness = {"best": best_temperature(head, tokens, query, n).lam}
        for kind in SCHEDULES:
            sharpness[kind] = schedule_error(head, tokens, query, n, kind=kind).lam
    law = hardmax_error(head, tokens, query, n)
    rows = []
    for draw, child in enumerate(seed.spawn(shard["draws"]), shard.get("first", 0)):
        keys = tokens.sample(int(n[-1]), np.random.default_rng(child))
        scores = keys @ head.tilts(query)
        for name, factors in sharpness.items():
            for k, size in enumerate(n):
                output = _attend(factors[k] * scores[:size], scores[:size], keys[:size])
                miss = head.V @ output / law.scale[k] - law.target[0]
                rows.append((name, draw, int(size), float(factors[k]), float(miss @ miss)))
    frame = pd.DataFrame(rows, columns=["what", "draw", "n", "lam", "square"])
    return frame.assign(tokens=shard["case"][0], dim=shard["case"][1])


def _attend(sharp: Array, scores: Array, keys: Array) -> Array:
    if not np.isfinite(sharp).all():
        return np.asarray(keys[scores.argmax()])
    weights = np.exp(sharp - sharp.max())
    return np.asarray(weights @ keys / weights.sum())


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.groupby(["tokens", "dim", "what", "n"], sort=False).agg(
        mse=("square", "mean"), stderr=("square", "sem"), lam=("lam", "first")
    )
    measured = found.reset_index().assign(method="measured")
    parts = [measured]
    sizes = np.union1d(config["far"], config["n"]).astype(np.int64)
    for name, dim in config["cases"]:
        law = hardmax_error(*_problem(name, dim), sizes)
        parts.append(_law(name, dim, "hardmax", sizes, law.mse[0], np.inf))
    case = ("sphere", config["schedule_dim"])
    best = best_temperature(*_problem(*case), sizes)
    parts.append(_law(*case, "best", sizes, best.mse, best.lam))
    for kind in SCHEDULES:
        near = schedule_error(*_problem(*case), config["n"], kind=kind)
        far = schedule_error(*_problem(*case), sizes, kind=kind, constant=near.constant)
        parts.append(_law(*case, kind, sizes, far.mse, far.lam))
    curves = pd.concat(parts, ignore_index=True)
    curves["root"] = np.sqrt(curves["mse"])
    curves["root_stderr"] = curves["stderr"] / (2 * curves["root"])
    return curves


def _law(
    name: str, dim: int, what: str, n: NDArray[np.int64], mse: Array, lam: Array | float
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "tokens": name,
            "dim": dim,
            "what": what,
            "n": n,
            "mse": mse,
            "stderr": 0.0,
            "lam": lam,
            "method": "exact",
        }
    )


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (name, dim, what), part in groups(curves, "tokens", "dim", "what"):
        exact = part[part["method"] == "exact"].set_index("n").sort_index()
        measured = part[part["method"] == "measured"].set_index("n").sort_index()
        both = measured.join(exact[["root"]], rsuffix="_exact")
        z = ((both["root"] - both["root_exact"]) / both["root_stderr"].clip(lower=1e-300)).abs()
        last = both.iloc[-1]
        far = exact.iloc[[-3, -1]]
        rate = -np.diff(np.log(far["root"])) / np.diff(np.log(far.index.to_numpy(dtype=float)))
        rows.append(
            {
                "tokens": f"{name}, d = {dim}",
                "scores": {"hardmax": "λ = ∞", "best": "best λ"}.get(what) or SCHEDULES[what],
                "n": int(both.index[-1]),
                "measured error": f"{last['root']:.4f} ± {last['root_stderr']:.4f}",
                "exact error": last["root_exact"],
                "largest |z|": z.max(),
                f"local rate at n={far.index[-1]:.0e}": float(rate[0]),
            }
        )
    return pd.DataFrame(rows)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    panels = []
    for dim in dict.fromkeys(case[1] for case in config["cases"]):
        series = []
        for name in ("gaussian", "sphere", "cube"):
            here = curves[
                (curves["what"] == "hardmax") & (curves["dim"] == dim) & (curves["tokens"] == name)
            ]
            series += _pair(here, name, name)
        panels.append(
            Panel(f"best of n tokens, d = {dim}", "number of tokens n", "error", tuple(series))
        )
    names = {"hardmax": "λ = ∞", "best": "best λ for each n", **SCHEDULES}
    case = (curves["tokens"] == "sphere") & (curves["dim"] == config["schedule_dim"])
    errors: list[Series] = []
    sharpness = []
    for what, label in names.items():
        here = curves[case & (curves["what"] == what)]
        errors += _pair(here, label, label)
        exact = here[here["method"] == "exact"].sort_values("n")
        if what != "hardmax":
            sharpness.append(Series(exact["n"], exact["lam"], "line", label, label))
    dim = config["schedule_dim"]
    panels.append(
        Panel(f"sphere, d = {dim}: schedules of λ", "number of tokens n", "error", tuple(errors))
    )
    panels.append(
        Panel(f"sphere, d = {dim}: sharpness", "number of tokens n", "λ", tuple(sharpness))
    )
    caption = f"lines: exact law; points: measured, {config['replicates']} draws, 2 standard errors"
    return FigureSpec(TITLE, tuple(panels), 2, caption)


def _pair(rows: pd.DataFrame, label: str, group: str) -> list[Series]:
    exact = rows[rows["method"] == "exact"].sort_values("n")
    measured = rows[rows["method"] == "measured"]
    bars = 2 * measured["root_stderr"]
    return [
        Series(exact["n"], exact["root"], "line", label, group),
        Series(measured["n"], measured["root"], "points", None, group, error=bars),
    ]


EXPERIMENT = Experiment(
    "hardmax",
    TITLE,
    _config,
    _shards,
    _compute,
    _combine,
    _figure,
    _table,
    split=halve_draws,
)
