"""How many bags each classifier can separate, and linear programs that check it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import LINEAR, panel, points
from attnlimit.reproduce.rows import groups, where
from attnlimit.reproduce.sparse.rows import NAMES, paired, shared, sizes, task_of
from attnlimit.sparse import capacity, simulate_capacity


class SeparableBags(Experiment):
    """Capacity against strength, and the separable fraction of draws around it where `checked`.

    A classifier with dimension 0 in `dims` is not drawn.
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
            {**base, "model": model, "strengths": [strength], "dim": dim, "ratio": ratio}
            for model, dim in dims.items()
            if dim
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
            labels = {"model": model, "strength": strength, "ratio": ratio}
            frames.append(paired(labels, predicted, drawn))
        return pd.concat(frames)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        lines, checks = [], []
        stars = where(curves, quantity="capacity").sort_values("strength", kind="stable")
        for model, line in groups(stars, "model"):
            lines.append(Series(line["strength"], line["predicted"], "line", NAMES[model], model))
        for (model, _), dots in groups(where(curves, quantity="separable"), "model", "strength"):
            checks.append(points(dots, "ratio", group=model))
            checks.append(Series(dots["ratio"], dots["measured"], "dotted", None, model))
        panels = [panel("capacity", lines, "alpha* = n/d", "signal strength", x_scale="linear")]
        if checks:
            ends = min(config["ratios"]), 1.0, 1.0, max(config["ratios"])
            step = Series(ends, [1.0, 1.0, 0.0, 0.0], "dashed", "limit", "limit")
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
            dots = where(part, quantity="separable")
            star = where(part, quantity="capacity")["predicted"]
            row = {"model": model, "strength": strength, "alpha_star": star.iloc[0]}
            if len(dots):
                half, error = _half(dots.sort_values("ratio"))
                row |= {
                    "alpha_star measured": half * star.iloc[0],
                    "alpha_star stderr": error * star.iloc[0],
                }
            for dot in dots.itertuples():
                row[f"separable at {dot.ratio:g}"] = dot.measured
            rows.append(row)
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        """What the columns are; a step is not compared point by point."""
        if where(curves, quantity="separable").empty:
            return []
        return [
            "alpha_star measured: where half of the draws are separable; separable at: fraction of "
            f"{config['replicates']} draws at this multiple of the capacity."
        ]


def _half(dots: pd.DataFrame) -> tuple[float, float]:
    """Ratio at which half of the draws are separable, by a straight line near it, with error."""
    x, p = dots["ratio"].to_numpy(), dots["measured"].to_numpy()
    near = (p > 0.02) & (p < 0.98)
    if near.sum() < 2:
        return float(np.interp(0.5, p[::-1], x[::-1])), float("nan")
    error = np.maximum(dots["stderr"].to_numpy()[near], 0.02)
    (slope, level), cov = np.polyfit(x[near] - 1, p[near], 1, w=1 / error, cov="unscaled")
    if not slope < 0:
        return float("nan"), float("nan")
    half = (0.5 - level) / slope
    gradient = np.array([-half / slope, -1 / slope])
    return 1 + float(half), float(np.sqrt(gradient @ cov @ gradient))


EXPERIMENT = SeparableBags()
