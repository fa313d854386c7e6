"""Is every head of a real BERT predicted? Exact laws and the delta method against measurement."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import capture_of, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard

TITLE = "All heads of MiniLM on a 512-token article: predicted error against measured"
STATISTICS = ("pointwise", "mean")


def _config(paper: bool) -> Config:
    return source("minilm", "Anarchism", 512) | {
        "seed": 0,
        "layers": list(range(6)),
        "heads": 12,
        "pointwise_n": [16, 64, 256],
        "mean_n": [32, 128, 384],
        "pointwise_replicates": 2000 if paper else 200,
        "mean_replicates": 8000 if paper else 2000,
    }


def _shards(config: Config) -> list[Shard]:
    return [
        {**config, "layer": layer, "head": head}
        for layer in config["layers"]
        for head in range(config["heads"])
    ]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    capture = capture_of(shard)
    place = {"layer": shard["layer"], "head": shard["head"]}
    # A Monte Carlo seed is a whole number, one for each head.
    number = int(seed.generate_state(1)[0])
    rows = []
    for statistic in STATISTICS:
        counts = shard[f"{statistic}_n"]
        predicted = predict_capture(capture, statistic, counts, **place)
        measured = measure_capture(
            capture, statistic, counts, shard[f"{statistic}_replicates"], number, **place
        )
        frame = pd.DataFrame(
            {
                "statistic": statistic,
                "n": counts,
                "predicted": predicted.root,
                "measured": measured.root,
                "stderr": measured.root_stderr,
            }
        )
        if statistic == "mean":
            delta = predict_capture(capture, "mean", counts, method="delta", **place)
            frame["delta"] = delta.root
            frame["reliable"] = delta.source["reliable"]
        rows.append(frame)
    found = pd.concat(rows, ignore_index=True).assign(**place)
    return found.assign(horizon=capture.horizons()[shard["layer"], shard["head"]])


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    frame = rows.drop(columns="shard")
    frame["reliable"] = frame["reliable"].fillna(False).astype(bool)
    return frame.assign(
        error=frame.predicted / frame.measured - 1, delta_error=frame.delta / frame.measured - 1
    )


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (statistic, n), part in curves.groupby(["statistic", "n"], sort=False):
        worst = part.iloc[int(np.argmax(part.error.abs()))]
        row = {
            "statistic": statistic,
            "n": n,
            "median |error|": part.error.abs().median(),
            "worst |error|": abs(worst.error),
            "worst head": f"{worst.layer:.0f}, {worst['head']:.0f}",
            "median noise": (part.stderr / part.measured).median(),
        }
        if statistic == "mean":
            trusted = part[part.reliable]
            row["delta reliable in"] = f"{len(trusted)} of {len(part)} heads"
            row["worst delta there"] = trusted.delta_error.abs().max()
            row["worst delta elsewhere"] = part[~part.reliable].delta_error.abs().max()
        rows.append(row)
    return pd.DataFrame(rows)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    panels = []
    for statistic, name in (("pointwise", "output of a query"), ("mean", "mean output")):
        part = curves[curves.statistic == statistic]
        ends = np.array([part.measured.min() * 0.9, part.measured.max() * 1.1])
        series = [Series(ends, ends, "dotted", "equal", group="equal")]
        for n, points in part.groupby("n"):
            series.append(
                Series(
                    points.predicted,
                    points.measured,
                    "points",
                    f"n = {n}",
                    group=str(n),
                    error=points.stderr,
                )
            )
        panels.append(
            Panel(
                f"Error of the {name}, each of {config['heads'] * len(config['layers'])} heads",
                "predicted root mean square error",
                "measured",
                tuple(series),
            )
        )
    part = curves[curves.statistic == "mean"]
    series = [Series([-0.0, 3.0], [0, 0], "dotted", group="zero")]
    for flag, label in ((True, "flag: reliable"), (False, "flag: not reliable")):
        points = part[part.reliable == flag]
        series.append(
            Series(points.horizon.clip(upper=3), points.delta_error, "points", label, group=label)
        )
    panels.append(
        Panel(
            "Delta method for the mean output, all n",
            "horizon H of the head (3 and beyond at 3)",
            "predicted / measured - 1",
            tuple(series),
            x_scale="linear",
            y_scale="linear",
        )
    )
    return FigureSpec(
        TITLE,
        tuple(panels),
        columns=3,
        caption="MiniLM, first 512 tokens of the Wikipedia article Anarchism.",
    )


EXPERIMENT = Experiment("heads", TITLE, _config, _shards, _compute, _combine, _figure, _table)
