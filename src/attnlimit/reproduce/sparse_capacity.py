"""Number of bags that each classifier can separate, and linear programs that check it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit
from scipy.special import ndtr

from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import comparable, groups, where, with_z
from attnlimit.reproduce.experiment import STC, Config, Experiment, Shard
from attnlimit.reproduce.panels import LINEAR, panel, points
from attnlimit.reproduce.sparse_rows import NAMES, paired, shared, sizes, task_of
from attnlimit.sparse.trained_readout import capacity
from attnlimit.sparse.training import simulate_capacity

KEYS = ["model", "strength"]


class SeparableBags(Experiment):
    """Capacity against strength, and the separable fraction of draws around it where `checked`.

    Draws are made in the dimension of `dims` and in half of it, and where half of them are
    separable is extrapolated in 1/d. A classifier with dimension 0 is not drawn.
    """

    name = "sparse-capacity"
    title = "Sparse tokens: number of separable bags, against linear programs"

    paper = STC
    figure_of_paper = "theorem: capacity"
    minutes = 3
    settings = {
        "length": 6,
        "signals": 1,
        "prior": 0.5,
        "cosine": 0.8,
        "sharpness": 1.0,
        "strengths": np.linspace(0, 6, 13).tolist(),
        "checked": [2.0],
        "dims": {"attention": 80, "pooled": 80, "vectorized": 20},
        "replicates": 40,
        "ratios": [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3],
    }
    paper_settings = {
        "dims": {"attention": 200, "pooled": 200, "vectorized": 40},
        "replicates": 100,
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
        model, ratio, frames = shard["model"], shard.get("ratio", np.nan), []
        for strength in shard["strengths"]:
            task, drawn = task_of({**shard, "strength": strength}), None
            star = capacity(task, model, **query).value
            predicted = {"capacity": star}
            if shard["dim"]:
                # in the limit all are separable below the capacity, none above
                predicted["separable"] = float(np.heaviside(1 - ratio, 0.5))
                many = sizes(shard, seed)
                drawn = simulate_capacity(task, ratio * star, model, **query, **many)
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
        table = with_z(capacities(curves, config["replicates"]))
        dots = _largest(where(curves, quantity="separable"))
        if len(dots):
            wide = dots.pivot(index=KEYS, columns="ratio", values="measured")
            table = table.join(wide.rename(columns="separable at {:g}".format), on=KEYS)
        names = {"predicted": "", "measured": " measured", "stderr": " stderr"}
        named = {key: f"alpha_star{name}" for key, name in names.items()}
        return table.rename(columns=named).dropna(axis="columns", how="all")

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """The capacity and where half of the draws are separable: a step has no other number."""
        rows = capacities(curves, config["replicates"])
        return comparable(rows.drop(columns=["at d", "at d/2"]))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
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
    """The rows drawn in the larger of the dimensions, for each model and strength."""
    return dots[dots["dim"] == dots.groupby(KEYS)["dim"].transform("max")].sort_values("ratio")


def capacities(curves: pd.DataFrame, replicates: int) -> pd.DataFrame:
    """The capacity of each model and strength, predicted and, if draws were made, measured.

    Measured values tend to their limit like 1/d: two dimensions give it.
    """
    rows = []
    for (model, strength), part in groups(curves, *KEYS):
        star = float(where(part, quantity="capacity")["predicted"].iloc[0])
        dots = groups(where(part, quantity="separable").sort_values("dim", ascending=False), "dim")
        halves = [(int(dim), *_crossing(rows, replicates)) for dim, rows in dots]
        ratios = [ratio for _, ratio, _ in halves] + [np.nan, np.nan]
        limit = error = np.nan
        if len(halves) == 1:
            _, limit, error = halves[0]
        elif halves:
            (large, limit, error), (small, other, other_error) = halves
            gain = small / (large - small)
            limit += gain * (limit - other)
            error = float(np.hypot((1 + gain) * error, gain * other_error))
        row = {"model": model, "strength": strength, "predicted": star, "measured": limit * star}
        row |= {"stderr": error * star, "at d": ratios[0] * star, "at d/2": ratios[1] * star}
        rows.append(row)
    return pd.DataFrame(rows)


def _crossing(dots: pd.DataFrame, replicates: int) -> tuple[float, float]:
    """Ratio at which half of the draws are separable, and its error: a normal curve is fitted."""
    x, p = dots["ratio"].to_numpy(), dots["measured"].to_numpy()
    if not (p.max() > 0.5 > p.min()):
        return float("nan"), float("nan")
    p = (replicates * p + 0.25) / (replicates + 0.5)  # a step between two dots still has a width
    start = float((p * np.gradient(x)).sum() + x.min()), np.ptp(x) / 6
    how = {"sigma": np.sqrt(p * (1 - p) / replicates), "absolute_sigma": True}
    (middle, _), covariance = curve_fit(lambda r, m, w: ndtr((m - r) / w), x, p, start, **how)
    return float(middle), float(covariance[0, 0] ** 0.5)


EXPERIMENT = SeparableBags()
