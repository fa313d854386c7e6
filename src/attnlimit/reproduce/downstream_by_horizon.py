"""Do texts with a larger horizon lose more when attention is thinned? Accuracy by tertile."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.downstream import accuracy, combine, compute, config, shards
from attnlimit.reproduce.experiment import Config, Experiment, Shard

TITLE = "Retrieval with i.i.d. keys, by the horizon of the text"
TERTILES = ("low horizon", "middle", "high horizon")


def _shards(config: Config) -> list[Shard]:
    return [shard for shard in shards(config) if shard["scheme"] == "iid"]


def _with_tertile(curves: pd.DataFrame) -> pd.DataFrame:
    edges = np.quantile(curves.groupby("article").horizon.first(), [1 / 3, 2 / 3])
    return curves.assign(tertile=np.searchsorted(edges, curves.horizon))


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (tertile, n), part in _with_tertile(curves).groupby(["tertile", "n"]):
        value, stderr = accuracy(part)
        rows.append(
            {
                "tertile": TERTILES[int(str(tertile))],
                "median H": part.horizon.median(),
                "n": n,
                "accuracy": value,
                "stderr": stderr,
                "dense accuracy": part.dense_hit.mean(),
                "cosine to dense": part.cosine.mean(),
            }
        )
    return pd.DataFrame(rows)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    left, right = [], []
    marked = _with_tertile(curves)
    for number, name in enumerate(TERTILES):
        part = marked[marked.tertile == number]
        values, errors = np.array([accuracy(part[part.n == n]) for n in config["n"]]).T
        left.append(Series(config["n"], values, "line", None, group=name))
        left.append(Series(config["n"], values, "points", name, group=name, error=errors))
        cosine = part.groupby("n").cosine.mean()
        right.append(Series(cosine.index, cosine, "line", None, group=name))
        right.append(Series(cosine.index, cosine, "points", name, group=name))
    axis = "keys seen by a query, n"
    return FigureSpec(
        TITLE,
        (
            Panel("Finding the other half", axis, "accuracy", tuple(left), y_scale="linear"),
            Panel("Embedding", axis, "cosine to dense", tuple(right), y_scale="linear"),
        ),
        caption="Tertiles of the median horizon over the heads of MiniLM on each passage.",
    )


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    part = curves.groupby("article")[["horizon", "cosine"]].mean()
    return [
        "Rank correlation over articles between horizon and the cosine to the dense embedding: "
        f"{part.corr('spearman').iloc[0, 1]:+.2f} (positive: a larger horizon loses less)."
    ]


EXPERIMENT = Experiment(
    "downstream-by-horizon",
    TITLE,
    config,
    _shards,
    compute,
    combine,
    _figure,
    _table,
    _remarks,
)
