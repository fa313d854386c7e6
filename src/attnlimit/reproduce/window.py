"""A window plus random tokens (as in BigBird): is its error predicted, head by head?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import capture_of, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.samplers import Iid, Keep, Sampler, Window

TITLE = "A window and 50 random tokens on a real BERT: predicted and measured, against i.i.d."
NAMES = {
    "window": "window + 50 random",
    "weighted": "window + 50 random, weighted",
    "iid": "i.i.d.",
}


def _config(paper: bool) -> Config:
    return source("minilm", "Anarchism", 512) | {
        "seed": 0,
        "layers": list(range(6)),
        "heads": 12,
        "random": 50,
        "n": [64, 96, 128, 192, 256, 320, 384],
        "replicates": 200 if paper else 40,
    }


def _shards(config: Config) -> list[Shard]:
    return [
        {**config, "layer": layer, "head": head}
        for layer in config["layers"]
        for head in range(config["heads"])
    ]


def _sampler(scheme: str, n: int, random: int) -> Sampler:
    if scheme == "iid":
        return Iid(n)
    if scheme == "weighted":
        return Keep(Window(n - random, random=0), sample=random)
    return Window(n - random, random=random)


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    capture = capture_of(shard)
    place = {"layer": shard["layer"], "head": shard["head"]}
    number = int(seed.generate_state(1)[0])
    scale = capture[place["layer"], place["head"]].output().square().sum(1).mean().sqrt().item()
    rows = []
    for scheme in NAMES:
        for n in shard["n"]:
            sampler = _sampler(scheme, n, shard["random"])
            counts = [n] if scheme == "iid" else None
            predicted = predict_capture(capture, "pointwise", counts, sampler=sampler, **place)
            measured = measure_capture(
                capture, "pointwise", counts, shard["replicates"], number, sampler=sampler, **place
            )
            rows.append(
                {
                    "scheme": scheme,
                    "n": n,
                    "predicted": predicted.root[0] / scale,
                    "measured": measured.root[0] / scale,
                    "stderr": measured.root_stderr[0] / scale,
                }
            )
    horizon = capture.horizons()[place["layer"], place["head"]]
    return pd.DataFrame(rows).assign(horizon=horizon, **place)


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns="shard")


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (scheme, n), part in curves.groupby(["scheme", "n"], sort=False):
        if n in (config["n"][0], 128, 256, config["n"][-1]):
            gap = (part.predicted / part.measured - 1).abs()
            rows.append(
                {
                    "scheme": NAMES[str(scheme)],
                    "n": n,
                    "median relative error": part.measured.median(),
                    "predicted": part.predicted.median(),
                    "worst |predicted/measured - 1|": gap.max(),
                }
            )
    return pd.DataFrame(rows)


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    last = curves[curves.n == 128].pivot_table(
        index=["layer", "head"], columns="scheme", values="measured"
    )
    better = int((last.window < last.iid).sum())
    return [
        f"At n = 128 the window with random tokens beats i.i.d. sampling in {better} of "
        f"{len(last)} heads; weighting the random tokens by the inverse of their chance helps in "
        f"{int((last.weighted < last.window).sum())}."
    ]


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    series = []
    for scheme, name in NAMES.items():
        part = curves[curves.scheme == scheme].groupby("n")[["predicted", "measured"]].median()
        series.append(Series(part.index, part.predicted, "line", name, group=scheme))
        series.append(Series(part.index, part.measured, "points", None, group=scheme))
    panels = [
        Panel(
            "Median over the heads (lines: law, points: measured)",
            "keys seen by a query, n",
            "relative error of the output",
            tuple(series),
        )
    ]
    part = curves[curves.n == 128]
    ends = np.array([part.measured.min() * 0.9, part.measured.max() * 1.1])
    dots = [Series(ends, ends, "dotted", "equal", group="equal")]
    for scheme, name in NAMES.items():
        chosen = part[part.scheme == scheme]
        dots.append(
            Series(
                chosen.predicted, chosen.measured, "points", name, group=scheme, error=chosen.stderr
            )
        )
    panels.append(Panel("Every head at n = 128", "predicted", "measured", tuple(dots)))
    rates = []
    for scheme, name in NAMES.items():
        points = []
        for _, head in curves[(curves.scheme == scheme) & (curves.horizon < 3)].groupby(
            ["layer", "head"]
        ):
            points.append(
                (head.horizon.iloc[0], -np.polyfit(np.log(head.n), np.log(head.measured), 1)[0])
            )
        x, y = np.array(points).T
        rates.append(Series(x, y, "points", name, group=scheme))
    panels.append(
        Panel(
            "Rate over n = 64 to 384, by head",
            "horizon H",
            "rate",
            tuple(rates),
            x_scale="linear",
            y_scale="linear",
        )
    )
    return FigureSpec(
        TITLE,
        tuple(panels),
        columns=3,
        caption="MiniLM, 512 tokens of the article Anarchism; "
        "one head with a horizon above 3 is left out of the last panel.",
    )


EXPERIMENT = Experiment(
    "window", TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks
)
