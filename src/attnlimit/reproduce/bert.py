"""BERT on Wikipedia text: do rates of mean and covariance fall with the horizon, head by head?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.curve import Curve
from attnlimit.models.heads.curves import predict_capture
from attnlimit.models.heads.draws import replicate_errors
from attnlimit.montecarlo.fit import fit_rate
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import capture_of, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.samplers import Iid

TITLE = "A real BERT: rates of mean and covariance against the horizon, over layers and heads"
MEASURED = ["mean_norm", "covariance_norm", "mean"]


def _config(paper: bool) -> Config:
    return source("minilm", "Anarchism", 512) | {
        "seed": 0,
        "layers": list(range(6)),
        "heads": 12,
        "n": [64, 96, 128, 192, 256, 320, 384],
        "replicates": 500 if paper else 150,
    }


def _shards(config: Config) -> list[Shard]:
    # One stream for all: heads share their draws, so that a layer's heads can be added up.
    return [
        {**config, "layer": layer, "head": head, "stream": 0}
        for layer in config["layers"]
        for head in range(config["heads"])
    ]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    capture = capture_of(shard)
    layer, number, counts = shard["layer"], shard["head"], shard["n"]
    head = capture[layer, number]
    predicted = predict_capture(capture, "mean", counts, layer=layer, head=number)
    rows = []
    for k, (n, child) in enumerate(zip(counts, seed.spawn(len(counts)), strict=True)):
        found = replicate_errors(head, MEASURED, Iid(n), shard["replicates"], child)
        for statistic, values in found.items():
            rows.append(
                {
                    "statistic": statistic,
                    "n": n,
                    "value": values.mean(),
                    "stderr": values.std(ddof=1) / len(values) ** 0.5,
                    "predicted": predicted.value[k] if statistic == "mean" else np.nan,
                }
            )
    frame = pd.DataFrame(rows).assign(layer=layer, head=number, replicates=shard["replicates"])
    summed = capture.horizons(convention="summed")[layer, number]
    return frame.assign(horizon=capture.horizons()[layer, number], summed_horizon=summed)


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns="shard")


def _curve(part: pd.DataFrame, statistic: str) -> Curve:
    chosen = part[part.statistic == statistic].sort_values("n")
    return Curve(
        statistic=statistic,
        n=chosen.n.to_numpy(np.int64),
        value=chosen.value.to_numpy(float),
        stderr=chosen.stderr.to_numpy(float),
        method="monte carlo",
        covariance=np.diag(chosen.stderr.to_numpy(float) ** 2),
        replicates=int(chosen.replicates.iloc[0]),
    )


def _predicted_slope(part: pd.DataFrame) -> float:
    chosen = part[part.statistic == "mean"].sort_values("n")
    return float(-np.polyfit(np.log(chosen.n), np.log(chosen.predicted) / 2, 1)[0])


def slopes(curves: pd.DataFrame) -> pd.DataFrame:
    """Fitted and predicted rates of every head."""
    rows = []
    for (layer, head), part in curves.groupby(["layer", "head"]):
        root, mean, covariance = (
            fit_rate(_curve(part, s)) for s in ("mean", "mean_norm", "covariance_norm")
        )
        rows.append(
            {
                "layer": layer,
                "head": head,
                "horizon": part.horizon.iloc[0],
                "summed_horizon": part.summed_horizon.iloc[0],
                "root": root.beta,
                "root_stderr": root.stderr,
                "mean": mean.beta,
                "mean_stderr": mean.stderr,
                "predicted": _predicted_slope(part),
                "covariance": covariance.beta,
                "covariance_stderr": covariance.stderr,
            }
        )
    return pd.DataFrame(rows)


def _layer_slopes(curves: pd.DataFrame) -> pd.DataFrame:
    """Rate of each layer's mean output, its heads side by side, against the summed horizon."""
    rows = []
    for layer, part in curves[curves.statistic == "mean"].groupby("layer"):
        total = part.groupby("n")[["value", "predicted"]].sum()
        logs = np.log(total.index.to_numpy(float))
        fitted = [-np.polyfit(logs, np.log(total[key]) / 2, 1)[0] for key in total]
        rows.append((layer, part.summed_horizon.iloc[0], *fitted))
    return pd.DataFrame(rows, columns=["layer", "summed_horizon", "measured", "predicted"])


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    heads = slopes(curves)
    layers = _layer_slopes(curves).set_index("layer")
    rows = []
    for layer, part in heads.groupby("layer"):
        rows.append(
            {
                "layer": layer,
                "H, median head": part.horizon.median(),
                "H, summed convention": layers.summed_horizon[layer],
                "mean, norm": part["mean"].median(),
                "mean, rms": part.root.median(),
                "predicted rms": part.predicted.median(),
                "covariance, norm": part.covariance.median(),
                "layer, rms": layers.measured[layer],
                "predicted layer": layers.predicted[layer],
            }
        )
    return pd.DataFrame(rows)


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    heads = slopes(curves)
    gap = heads.root - heads.predicted
    pairs = [heads[["horizon", key]].corr("spearman").iloc[0, 1] for key in ("mean", "covariance")]
    return [
        f"Rate of the mean (root mean square), measured less predicted over {len(heads)} heads: "
        f"median {gap.median():+.3f}, spread {gap.std():.3f}, "
        f"median standard error {heads.root_stderr.median():.3f}.",
        f"Rank correlation with the horizon: rate of the mean {pairs[0]:+.2f}, "
        f"of the covariance {pairs[1]:+.2f}.",
    ]


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    heads = slopes(curves)
    shown = heads[heads.horizon < 3]
    left = len(heads) - len(shown)
    half = Series([0.2, 2.3], [0.5, 0.5], "dotted", "1/2", group="half")
    panels = [
        Panel(
            "Mean output: rate over n = 64 to 384, by head",
            "horizon H",
            "rate of the root mean square",
            (
                half,
                Series(
                    shown.horizon,
                    shown.root,
                    "points",
                    "measured",
                    group="measured",
                    error=shown.root_stderr,
                ),
                Series(shown.horizon, shown.predicted, "points", "two-query law", group="law"),
            ),
            x_scale="linear",
            y_scale="linear",
        ),
        Panel(
            "Covariance of the outputs, by head",
            "horizon H",
            "rate of the expected norm",
            (
                half,
                Series(
                    shown.horizon,
                    shown.covariance,
                    "points",
                    "measured",
                    group="measured",
                    error=shown.covariance_stderr,
                ),
            ),
            x_scale="linear",
            y_scale="linear",
        ),
    ]
    layers = _layer_slopes(curves)
    panels.append(
        Panel(
            "Mean output of a layer, all heads together",
            "horizon, summed and unscaled",
            "rate of the root mean square",
            tuple(
                Series(layers.summed_horizon, layers[key], "points", label, group=label)
                for key, label in (("measured", "measured"), ("predicted", "two-query law"))
            ),
            x_scale="linear",
            y_scale="linear",
        )
    )
    caption = (
        "MiniLM, 512 tokens of the article Anarchism, i.i.d. subsampling; "
        "the summed horizon is that of the published code."
    )
    if left:
        caption += f" {left} head with a horizon above 3 is not shown."
    return FigureSpec(TITLE, tuple(panels), columns=3, caption=caption)


EXPERIMENT = Experiment(
    "bert", TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks
)
