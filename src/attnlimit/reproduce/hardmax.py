"""Hardmax: the logarithmic rate of the best of n tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.picture import FigureSpec
from attnlimit.reproduce.compare import groups, largest_z, with_uncertainty
from attnlimit.reproduce.experiment import TSC, Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.theory.low_temperature.hardmax import hardmax_error
from attnlimit.tokens import Cube, Gaussian, Sphere, Tokens

TOKENS: dict[str, Callable[..., Tokens]] = {"gaussian": Gaussian, "sphere": Sphere, "cube": Cube}
CASE = ["tokens", "dim"]


class Hardmax(DrawnExperiment):
    """Distance of the best of n tokens to the exposed point."""

    name = "hardmax"
    title = "Hardmax: the logarithmic rate of the best of n tokens"
    paper = TSC
    figure_of_paper = "theorem: hardmax regime"
    minutes = 1
    settings = {
        "cases": [[name, dim] for dim in (50, 3) for name in ("gaussian", "sphere", "cube")],
        "n": grid(10, 20_000, 7),
        "far": grid(10, 10**12, 23),
        "replicates": 400,
        "block": 50,
    }
    paper_settings = {"n": grid(10, 100_000, 9), "replicates": 1000}

    def shards(self, config: Config) -> list[Shard]:
        return self.drawn(config, [{"case": case} for case in config["cases"]])

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Squared errors of every draw at every n."""
        head, tokens, query = _problem(*shard["case"])
        n = np.asarray(shard["n"], dtype=np.int64)
        law = hardmax_error(head, tokens, query, n)
        rows = []
        for child in seed.spawn(shard["draws"]):
            keys = tokens.sample(int(n[-1]), np.random.default_rng(child))
            scores = keys @ query
            for size, scale in zip(n, law.scale, strict=True):
                miss = keys[scores[:size].argmax()] / scale - law.target[0]
                rows.append((int(size), float(miss @ miss)))
        frame = pd.DataFrame(rows, columns=["n", "square"])
        return frame.assign(tokens=shard["case"][0], dim=shard["case"][1])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Put the exact law, far beyond what is drawn, beside the measured errors."""
        n = np.union1d(config["far"], config["n"]).astype(np.int64)
        exact = [
            pd.DataFrame({"n": n, "predicted": hardmax_error(*_problem(*case), n).root[0]}).assign(
                **dict(zip(CASE, case, strict=True))
            )
            for case in config["cases"]
        ]
        squares = rows.groupby([*CASE, "n"], sort=False)["square"]
        root = np.sqrt(squares.mean())
        measured = pd.DataFrame({"measured": root, "stderr": squares.sem() / (2 * root)})
        return pd.concat(exact).merge(measured.reset_index(), "left", [*CASE, "n"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (name, dim), part in groups(curves, *CASE):
            drawn = part[part["measured"].notna()].tail(1)
            near, far = part.iloc[-3], part.iloc[-1]
            rate = np.log(near["predicted"] / far["predicted"]) / np.log(far["n"] / near["n"])
            rows.append(
                {
                    "tokens": f"{name}, d = {dim}",
                    "n": drawn["n"].item(),
                    "measured error": with_uncertainty(drawn)[0],
                    "exact error": drawn["predicted"].item(),
                    "largest |z|": largest_z(part),
                    f"local rate at n={far['n']:.0e}": rate,
                }
            )
        return pd.DataFrame(rows)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for size, part in groups(curves, "dim"):
            series = pairs(part, "tokens", names=str.capitalize)
            panels.append(panel(f"best of n tokens, d = {size}", series, "error"))
        caption = f"lines: exact law; points: measured, {config['replicates']} draws"
        return FigureSpec(self.title, panels, 2, caption)


def _problem(name: str, dim: int) -> tuple[Head, Tokens, Array]:
    query = np.linspace(1.0, 2.0, dim)
    return Head(np.eye(dim)), TOKENS[name](dim=dim), query / np.linalg.norm(query)


EXPERIMENT = Hardmax()
