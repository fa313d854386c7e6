"""How do mean and covariance errors fall with n as a random head is sharpened?

Shared by the Gaussian tokens and the sphere of [TSC]: projections W_q, W_k, W_v of variance 1/d,
the first two times the square root of the scale, scores divided by sqrt(d).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlimit.curve import Curve
from attnlimit.errors import NoLimitError, NotConverged
from attnlimit.head import Head
from attnlimit.montecarlo.controls import token_features
from attnlimit.montecarlo.fit import fit_rate
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.storage import samples_frame, samples_from_frame
from attnlimit.montecarlo.sweep import sweep
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.rows import groups
from attnlimit.theory import horizon, predict
from attnlimit.tokens import Gaussian, Sphere, Tokens

STATISTICS = ("mean", "covariance", "mean_norm", "covariance_norm")
PREDICTED = ("mean", "covariance")
WEIGHTS_SEED = 42


def grid(low: int, high: int, count: int) -> list[int]:
    """Whole numbers from `low` to `high`, evenly spaced in their logarithm."""
    return [int(value) for value in np.unique(np.round(np.geomspace(low, high, count)))]


def paper_head(dim: int, scale: float) -> Head:
    """The head of the paper's synthetic experiments."""
    generator = torch.Generator().manual_seed(WEIGHTS_SEED)
    query, key, value = (
        (torch.randn(dim, dim, generator=generator) / dim**0.5).double().numpy() for _ in range(3)
    )
    return Head.from_projections(scale**0.5 * query, scale**0.5 * key, value)


def tokens_of(config: Config) -> Tokens:
    """The tokens of a configuration."""
    if config["tokens"] == "gaussian":
        return Gaussian(dim=config["dim"], variance=config["variance"])
    return Sphere(config["dim"])


def shards(config: Config) -> list[Shard]:
    """Draws in blocks that every temperature shares, and the predictions of each temperature."""
    common = {key: config[key] for key in ("tokens", "dim", "variance", "n")}
    work: list[Shard] = []
    blocks = config["replicates"] // config["block"]
    for scale in reversed(config["scales"]):
        for block in range(blocks):
            shard = {"kind": "measure", "scale": scale, "draws": config["block"], "stream": block}
            work.append(common | shard)
    for scale in config["scales"]:
        work.extend(
            common | {"kind": "predict", "scale": scale, "statistic": name} for name in PREDICTED
        )
    return work


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Measure or predict at one temperature."""
    head, tokens = paper_head(shard["dim"], shard["scale"]), tokens_of(shard)
    n = np.asarray(shard["n"], dtype=np.int64)
    if shard["kind"] == "measure":
        frame = samples_frame(sweep(head, tokens, STATISTICS, n, shard["draws"], seed))
        return frame.assign(kind="measure", scale=shard["scale"])
    try:
        curve = predict(head, tokens, shard["statistic"], n)
    except (NotConverged, NoLimitError) as error:
        reason = {"kind": "none", "scale": shard["scale"], "statistic": shard["statistic"]}
        return pd.DataFrame([reason | {"reason": str(error)}])
    return pd.DataFrame(
        {
            "kind": "predict",
            "scale": shard["scale"],
            "statistic": shard["statistic"],
            "n": n,
            "value": curve.value,
            "numerical_error": 0.0 if curve.numerical_error is None else curve.numerical_error,
        }
    )


def combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    """Curves and slopes of every temperature, predicted and measured side by side."""
    tokens = tokens_of(config)
    parts = []
    for scale in config["scales"]:
        head = paper_head(config["dim"], scale)
        here = rows[rows["scale"] == scale]
        measured = here[here["kind"] == "measure"]
        samples = samples_from_frame(measured, STATISTICS, token_features(head, tokens).gram)
        for name in STATISTICS:
            curve = samples_curve(samples[name])
            predicted = _predicted(here, name, curve)
            strength = horizon(head, tokens)
            limit = 1 / (1 + max(strength, 1.0) ** 2) if isinstance(tokens, Gaussian) else 0.5
            parts.append(_rows(scale, strength, limit, curve, predicted))
    return pd.concat(parts, ignore_index=True)


def _predicted(rows: pd.DataFrame, statistic: str, curve: Curve) -> Curve | None:
    found = rows[(rows["kind"] == "predict") & (rows["statistic"] == statistic)]
    if found.empty:
        return None
    return Curve(
        statistic=statistic,
        n=curve.n,
        value=found["value"].to_numpy(),
        stderr=np.zeros(len(curve.n)),
        method="theory",
    )


def _rows(
    scale: float, strength: float, limit: float, curve: Curve, predicted: Curve | None
) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "scale": scale,
        "horizon": strength,
        "statistic": curve.statistic,
        "n": curve.n,
        "value": curve.value,
        "stderr": curve.stderr,
        "root": curve.root,
        "root_stderr": curve.root_stderr,
        "predicted": np.nan if predicted is None else predicted.root,
        "variance_reduction": curve.source["variance_reduction"],
    }
    fit = fit_rate(curve, predicted=predicted)
    columns |= {
        "slope": fit.beta,
        "slope_stderr": fit.stderr,
        "slope_predicted": np.nan if fit.predicted is None else fit.predicted,
        "slope_limit": limit,
        "fit_p_value": fit.p_value,
        "heavy_tailed": fit.heavy_tailed,
    }
    return pd.DataFrame(columns)


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each temperature and statistic: slopes, and the worst gap to the prediction."""
    rows = []
    for (scale, statistic), part in groups(curves, "scale", "statistic"):
        if statistic not in PREDICTED:
            continue
        first = part.iloc[0]
        gap = part["predicted"] / part["root"] - 1
        rows.append(
            {
                "scale": f"{scale:.3g}",
                "H": first["horizon"],
                "statistic": statistic,
                "slope": f"{first['slope']:.4f} ± {first['slope_stderr']:.4f}",
                "predicted slope": first["slope_predicted"],
                "slope, n → ∞": first["slope_limit"],
                f"error at n={config['n'][-1]}": _pair(part.iloc[-1]),
                "predicted": part.iloc[-1]["predicted"],
                "largest gap %": 100 * gap.abs().max(),
                "variance reduction": part["variance_reduction"].median(),
            }
        )
    return pd.DataFrame(rows).sort_values("statistic", ascending=False, kind="stable")


def _pair(row: pd.Series) -> str:
    return f"{row['root']:.4g} ± {row['root_stderr']:.1g}"


def figure(config: Config, curves: pd.DataFrame, title: str) -> FigureSpec:
    """Errors against n, and their slopes against the horizon."""
    panels = []
    for statistic, word in (("mean", "mean output"), ("covariance", "covariance of the outputs")):
        here = curves[curves["statistic"] == statistic]
        series = []
        for scale, part in groups(here, "scale"):
            name = f"{scale:.3g}" if scale < 1000 else f"{scale:.0f}"
            label = name if statistic == "mean" else None  # one legend serves both
            series.append(Series(part["n"], part["predicted"], group=name))
            series.append(
                Series(
                    part["n"], part["root"], "points", label, name, error=2 * part["root_stderr"]
                )
            )
        panels.append(
            Panel(
                f"error of the {word}",
                "number of tokens n",
                "root mean square error",
                tuple(series),
                legend_title="scale" if statistic == "mean" else None,
            )
        )
    for statistic in PREDICTED:
        one = curves[curves["statistic"] == statistic].groupby("scale").first()
        strengths = np.geomspace(one["horizon"].min(), one["horizon"].max(), 200)
        limits, formula = np.full(200, 0.5), "1/2"
        if config["tokens"] == "gaussian":
            limits, formula = 1 / (1 + np.maximum(strengths, 1) ** 2), "1/2, then 1/(1+H²)"
        panels.append(
            Panel(
                f"slope of the {statistic} error, n from {config['n'][0]} to {config['n'][-1]}",
                "horizon H",
                "rate β",
                (
                    Series(
                        strengths,
                        limits,
                        "dotted",
                        f"limit n → ∞: {formula}",
                        "limit",
                    ),
                    Series(
                        one["horizon"],
                        one["slope_predicted"],
                        "line",
                        "predicted at these n",
                        "predicted",
                    ),
                    Series(
                        one["horizon"],
                        one["slope"],
                        "points",
                        "measured ± 2 standard errors",
                        "measured",
                        error=2 * one["slope_stderr"],
                    ),
                ),
                y_scale="linear",
            )
        )
    caption = (
        f"lines: predicted, points: measured ({config['replicates']} draws, 2 standard errors)"
    )
    return FigureSpec(title, tuple(panels), 2, caption)


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """What the comparison says, in sentences."""
    said = []
    for statistic in PREDICTED:
        part = curves[(curves["statistic"] == statistic) & curves["predicted"].notna()]
        if part.empty:
            continue
        gap = (part["predicted"] / part["root"] - 1).abs()
        worst = part.loc[gap.idxmax()]
        noise = 100 * worst["root_stderr"] / worst["root"]
        said.append(
            f"{statistic}: where there is a prediction it is within {100 * gap.max():.1f} % of the "
            f"measured error at every scale and n (largest at scale {worst['scale']:.3g}, "
            f"n = {worst['n']}, where the standard error is {noise:.1f} %)."
        )
    return said
