"""Hardmax: the logarithmic rate of the best of n tokens, and the best sharpness for each n."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.compare import agreement, groups, largest_z, where, with_uncertainty
from attnlimit.reproduce.experiment import TSC, Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.theory.low_temperature.hardmax import hardmax_error
from attnlimit.theory.low_temperature.temperature import best_temperature, schedule_error
from attnlimit.tokens import Cube, Gaussian, Sphere, Tokens

SCHEDULES = {"log": "λ = c log n", "sqrt-log": "λ = c √log n"}
NAMES = {"hardmax": "λ = ∞", "best": "best λ for each n", **SCHEDULES}
TOKENS: dict[str, Callable[..., Tokens]] = {"gaussian": Gaussian, "sphere": Sphere, "cube": Cube}
CASE = ["tokens", "dim", "what"]


class Hardmax(DrawnExperiment):
    """The best of n tokens, and sharpness that grows with n."""

    name = "hardmax"
    title = "Hardmax: the logarithmic rate, and the best temperature for each n"
    paper = TSC
    figure_of_paper = "theorem: hardmax regime"
    minutes = 1
    settings = {
        "cases": [[name, dim] for dim in (50, 3) for name in ("gaussian", "sphere", "cube")],
        "schedule_dim": 50,
        "n": grid(10, 20_000, 7),
        "far": grid(10, 10**12, 23),
        "replicates": 400,
        "block": 50,
    }
    paper_settings = {"n": grid(10, 100_000, 9), "replicates": 1000}

    def shards(self, config: Config) -> list[Shard]:
        kinds = [{"kind": "hardmax", "case": case} for case in config["cases"]]
        kinds.append({"kind": "schedule", "case": ["sphere", config["schedule_dim"]]})
        return self.drawn(config, kinds)

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Squared errors of every draw at every n and sharpness."""
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
        for child in seed.spawn(shard["draws"]):
            keys = tokens.sample(int(n[-1]), np.random.default_rng(child))
            scores = keys @ query
            for name, factors in sharpness.items():
                for k, size in enumerate(n):
                    output = _output(factors[k], scores[:size], keys[:size])
                    miss = output / law.scale[k] - law.target[0]
                    rows.append((name, int(size), float(miss @ miss)))
        frame = pd.DataFrame(rows, columns=["what", "n", "square"])
        return frame.assign(tokens=shard["case"][0], dim=shard["case"][1])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Put the exact law, far beyond what is drawn, beside the measured errors."""
        n = np.union1d(config["far"], config["n"]).astype(np.int64)
        laws: dict[tuple, tuple[Array, Array | float]] = {
            (*case, "hardmax"): (hardmax_error(*_problem(*case), n).mse[0], np.inf)
            for case in config["cases"]
        }
        case = ("sphere", config["schedule_dim"])
        best = best_temperature(*_problem(*case), n)
        laws[*case, "best"] = best.mse, best.lam
        for kind in SCHEDULES:
            near = schedule_error(*_problem(*case), config["n"], kind=kind)
            far = schedule_error(*_problem(*case), n, kind=kind, constant=near.constant)
            laws[*case, kind] = far.mse, far.lam
        exact = [
            pd.DataFrame({"n": n, "lam": lam, "predicted": np.sqrt(mse)}).assign(
                **dict(zip(CASE, key, strict=True))
            )
            for key, (mse, lam) in laws.items()
        ]
        squares = rows.groupby([*CASE, "n"], sort=False)["square"]
        root = np.sqrt(squares.mean())
        measured = pd.DataFrame({"measured": root, "stderr": squares.sem() / (2 * root)})
        return pd.concat(exact).merge(measured.reset_index(), "left", [*CASE, "n"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (name, dim, what), part in groups(curves, *CASE):
            drawn = part[part["measured"].notna()].tail(1)
            near, far = part.iloc[-3], part.iloc[-1]
            rate = np.log(near["predicted"] / far["predicted"]) / np.log(far["n"] / near["n"])
            rows.append(
                {
                    "tokens": f"{name}, d = {dim}",
                    "scores": NAMES[what],
                    "n": drawn["n"].item(),
                    "measured error": with_uncertainty(drawn)[0],
                    "exact error": drawn["predicted"].item(),
                    "largest |z|": largest_z(part),
                    f"local rate at n={far['n']:.0e}": rate,
                }
            )
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        hard = curves["what"] == "hardmax"
        return [agreement(curves[hard], "hardmax"), agreement(curves[~hard], "schedules")]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels, dim = [], config["schedule_dim"]
        for size, part in groups(where(curves, what="hardmax"), "dim"):
            series = pairs(part, "tokens", names=str.capitalize)
            panels.append(panel(f"best of n tokens, d = {size}", series, "error"))
        sphere = where(curves, tokens="sphere", dim=dim)
        # c log n is dashed, to show the best below it
        sharpness = [
            Series(here["n"], here["lam"], "dashed" if what == "log" else "line", NAMES[what], what)
            for what, here in groups(sphere[sphere["what"] != "hardmax"], "what")
        ]
        errors = [
            replace(series, style="dashed") if series.label == NAMES["log"] else series
            for series in pairs(sphere, "what", names=NAMES)
        ]
        panels += [
            panel(f"sphere, d = {dim}: schedules of λ", errors, "error"),
            panel(f"sphere, d = {dim}: sharpness", sharpness, "λ"),
        ]
        caption = f"lines: exact law; points: measured, {config['replicates']} draws"
        return FigureSpec(self.title, panels, 2, caption)


def _output(sharpness: float, scores: Array, keys: Array) -> Array:
    """Attention over keys at a sharpness, which may be infinite."""
    if not np.isfinite(sharpness):
        return np.asarray(keys[scores.argmax()])
    weights = np.exp(sharpness * (scores - scores.max()))
    return np.asarray(weights @ keys / weights.sum())


def _problem(name: str, dim: int) -> tuple[Head, Tokens, Array]:
    query = np.linspace(1.0, 2.0, dim)
    return Head(np.eye(dim)), TOKENS[name](dim=dim), query / np.linalg.norm(query)


EXPERIMENT = Hardmax()
