"""How many bags each classifier can separate, and linear programs that check it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import log_ndtr

from attnlimit.checks import Array
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import comparable, with_z
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import LINEAR, panel, points
from attnlimit.reproduce.rows import groups, where
from attnlimit.reproduce.sparse.rows import NAMES, paired, shared, sizes, task_of
from attnlimit.sparse import capacity, simulate_capacity

_COLUMNS = {
    "predicted": "alpha_star",
    "measured": "alpha_star measured",
    "stderr": "alpha_star stderr",
}


class SeparableBags(Experiment):
    """Capacity against strength, and the separable fraction of draws around it where `checked`.

    Draws are made in the dimension of `dims` and in half of it, and where half of them are
    separable is extrapolated in 1/d. A classifier with dimension 0 is not drawn.
    """

    name = "sparse-capacity"
    title = "Sparse tokens: how many bags are separable, against linear programs"

    def config(self, paper: bool) -> Config:
        dims = (200, 200, 40) if paper else (80, 80, 20)
        return {
            "length": 6,
            "signals": 1,
            "prior": 0.5,
            "cosine": 0.8,
            "sharpness": 1.0,
            "strengths": np.linspace(0, 6, 13).tolist(),
            "checked": [2.0],
            "dims": dict(zip(NAMES, dims, strict=True)),
            "replicates": 100 if paper else 40,
            "ratios": [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3],
        }

    def shards(self, config: Config) -> list[Shard]:
        base, dims = shared(config, "strengths", "checked", "dims", "ratios"), config["dims"]
        lines = [{**base, "model": m, "strengths": config["strengths"], "dim": 0} for m in dims]
        checks = [
            {**base, "model": model, "strengths": [strength], "dim": size, "ratio": ratio}
            for model, dim in dims.items()
            if dim
            for size in (dim, max(dim // 2, 2))
            for strength in config["checked"]
            for ratio in config["ratios"]
        ]
        return lines + checks

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Capacity at every strength, or the separable fraction at a ratio of it."""
        query = {"cosine": shard["cosine"], "sharpness": shard["sharpness"]}
        model, frames = shard["model"], []
        for strength in shard["strengths"]:
            task = task_of({**shard, "strength": strength})
            star = capacity(task, model, **query).value
            predicted, drawn, ratio = {"capacity": star}, None, shard.get("ratio", np.nan)
            if shard["dim"]:
                # in the limit: all separable below the capacity, none above
                predicted["separable"] = float(np.heaviside(1 - ratio, 0.5))
                alpha = ratio * star
                drawn = simulate_capacity(task, alpha, model, **query, **sizes(shard, seed))
            labels = {"model": model, "strength": strength, "dim": shard["dim"], "ratio": ratio}
            frames.append(paired(labels, predicted, drawn))
        return pd.concat(frames)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        lines, checks = [], []
        stars = where(curves, quantity="capacity").sort_values("strength", kind="stable")
        for model, line in groups(stars, "model"):
            lines.append(Series(line["strength"], line["predicted"], "line", NAMES[model], model))
        for (model, _), every in groups(where(curves, quantity="separable"), "model", "strength"):
            dots = _largest(every)
            # A step is not compared point by point.
            checks.append(points(dots.drop(columns="predicted"), "ratio", group=model))
        panels = [panel("capacity", lines, "alpha* = n/d", "signal strength", x_scale="linear")]
        if checks:
            ends = min(config["ratios"]), 1.0, 1.0, max(config["ratios"])
            step = Series(ends, [1.0, 1.0, 0.0, 0.0], "dashed", "limit", REFERENCE)
            title = f"linear programs at strength {', '.join(f'{s:g}' for s in config['checked'])}"
            axes = {"y": "separable fraction of draws", "x": "n over capacity", **LINEAR}
            panels.append(panel(title, [*checks, step], **axes))
        drawn = ", ".join(f"{dim} ({NAMES[model]})" for model, dim in config["dims"].items())
        caption = (
            f"L = {config['length']}, R = {config['signals']}, prior {config['prior']:g}; query "
            f"with cosine {config['cosine']:g} and sharpness {config['sharpness']:g}."
            + (f" Right: {config['replicates']} draws a point, d = {drawn}." if checks else "")
        )
        return FigureSpec("How many bags can be separated", tuple(panels), caption=caption)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (model, strength), part in groups(curves, "model", "strength"):
            dots = _largest(where(part, quantity="separable"))
            row = {"model": model, "strength": strength, **_star(part, config["replicates"])}
            row |= _by_size(part, config["replicates"])
            row |= {f"separable at {dot.ratio:g}": dot.measured for dot in dots.itertuples()}
            rows.append(row)
        table = with_z(pd.DataFrame(rows)).rename(columns=_COLUMNS)
        return table.dropna(axis="columns", how="all")

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """The capacity and where half of the draws are separable: a step has no other number."""
        rows = [
            {"model": model, "strength": strength, **_star(part, config["replicates"])}
            for (model, strength), part in groups(curves, "model", "strength")
        ]
        return comparable(pd.DataFrame(rows))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """What the columns are; a step is not compared point by point."""
        if where(curves, quantity="separable").empty:
            return []
        dims = ", ".join(f"{dim} ({NAMES[model]})" for model, dim in config["dims"].items() if dim)
        return [
            "alpha_star: the capacity for d to infinity; measured: where half of the draws are "
            f"separable, extrapolated in 1/d from d = {dims} and half of that, whose own values "
            "are in the columns 'at d' and 'at d/2'.",
            f"separable at: fraction of {config['replicates']} draws in the larger dimension at "
            "this multiple of the capacity; the step is some d^(-1/2) wide there.",
        ]


def _largest(dots: pd.DataFrame) -> pd.DataFrame:
    """The rows drawn in the larger of the dimensions."""
    return dots[dots["dim"] == dots["dim"].max()].sort_values("ratio")


def _halves(part: pd.DataFrame, replicates: int) -> list[tuple[int, float, float]]:
    """Dimension, and the ratio at which half of its draws are separable with its error."""
    dots = where(part, quantity="separable")
    found = [(int(dim), *_half(one, replicates)) for dim, one in groups(dots, "dim")]
    return sorted(found, reverse=True)


def _by_size(part: pd.DataFrame, replicates: int) -> dict[str, float]:
    """What each dimension measures, in units of the capacity's own."""
    star = float(where(part, quantity="capacity")["predicted"].iloc[0])
    names = ("at d", "at d/2")
    halves = _halves(part, replicates)
    return {name: half * star for name, (_, half, _) in zip(names, halves, strict=False)}


def _star(part: pd.DataFrame, replicates: int) -> dict[str, float]:
    """The capacity predicted and, if draws were made, measured with its standard error.

    Measured values tend to their limit like 1/d: two dimensions give it.
    """
    star = float(where(part, quantity="capacity")["predicted"].iloc[0])
    halves = _halves(part, replicates)
    limit, error = np.nan, np.nan
    if halves:
        _, limit, error = halves[0]
    if len(halves) == 2:
        (large, limit, error), (small, other, other_error) = halves
        gain = small / (large - small)
        limit += gain * (limit - other)
        error = float(np.hypot((1 + gain) * error, gain * other_error))
    return {"predicted": star, "measured": limit * star, "stderr": error * star}


def _half(dots: pd.DataFrame, replicates: int) -> tuple[float, float]:
    """Ratio at which half of the draws are separable, with error: a normal curve along the step.

    The likeliest one, and its error from Fisher's information: a ratio at which all draws are
    separable says little, and no straight line leans with those that happen to be near the middle.
    """
    x, p = dots["ratio"].to_numpy(), dots["measured"].to_numpy()
    if not (p.max() > 0.5 > p.min()):
        return float("nan"), float("nan")
    p = (replicates * p + 0.25) / (replicates + 0.5)  # a step between two dots still has a width

    def loss(at: Array) -> float:
        z = (at[0] - x) / np.exp(at[1])
        return -replicates * float((p * log_ndtr(z) + (1 - p) * log_ndtr(-z)).sum())

    start = np.array([float((p * np.gradient(x)).sum() + x[0]), np.log(np.ptp(x) / 6)])
    found = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    middle, width = float(found.x[0]), float(np.exp(found.x[1]))
    z = (middle - x) / width
    weight = replicates * np.exp(-(z**2) - log_ndtr(z) - log_ndtr(-z)) / (2 * np.pi * width**2)
    slopes = np.stack([np.ones_like(z), -z])
    return middle, float(np.sqrt(np.linalg.inv((weight * slopes) @ slopes.T)[0, 0]))


EXPERIMENT = SeparableBags()
