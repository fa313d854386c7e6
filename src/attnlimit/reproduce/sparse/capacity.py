"""How many bags each classifier can separate, and linear programs that check it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit
from scipy.special import ndtr

from attnlimit.checks import Array
from attnlimit.picture import FigureSpec, Series
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
            # A step is not compared point by point.
            checks.append(points(dots.drop(columns="predicted"), "ratio", group=model))
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
            row = {"model": model, "strength": strength, **_star(part)}
            row |= {f"separable at {dot.ratio:g}": dot.measured for dot in dots.itertuples()}
            rows.append(row)
        table = with_z(pd.DataFrame(rows)).rename(columns=_COLUMNS)
        return table.dropna(axis="columns", how="all")

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """The capacity and where half of the draws are separable: a step has no other number."""
        rows = [
            {"model": model, "strength": strength, **_star(part)}
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
            f"separable; separable at: fraction of {config['replicates']} draws at this multiple.",
            f"Drawn at d = {dims}: the step is some d^(-1/2) wide there and its middle still a few "
            "percent above the limit, so that measured values lie above predicted ones.",
        ]


def _star(part: pd.DataFrame) -> dict[str, float]:
    """The capacity predicted and, if draws were made, measured with its standard error."""
    star = float(where(part, quantity="capacity")["predicted"].iloc[0])
    dots = where(part, quantity="separable")
    half, error = _half(dots.sort_values("ratio")) if len(dots) else (np.nan, np.nan)
    return {"predicted": star, "measured": half * star, "stderr": error * star}


def _half(dots: pd.DataFrame) -> tuple[float, float]:
    """Ratio at which half of the draws are separable, with error: a normal curve along the step.

    A straight line through the dots near it would lean with those that happen to be near.
    """
    x, p = dots["ratio"].to_numpy(), dots["measured"].to_numpy()
    if not (p.max() > 0.5 > p.min()):
        return float("nan"), float("nan")
    spread = np.maximum(dots["stderr"].to_numpy(), 0.02)
    start = (float(np.interp(0.5, p[::-1], x[::-1])), float(np.log(np.ptp(x) / 6)))

    def step(ratio: Array, middle: float, log_width: float) -> Array:
        return np.asarray(ndtr((middle - ratio) / np.exp(log_width)))

    try:
        found, cov = curve_fit(step, x, p, start, sigma=spread, absolute_sigma=True)
    except RuntimeError:  # it did not converge
        return start[0], float("nan")
    left = (step(x, *found) - p) / spread
    scatter = max(1.0, float(left @ left) / max(len(x) - 2, 1))
    return float(found[0]), float(np.sqrt(cov[0, 0] * scatter))


EXPERIMENT = SeparableBags()
