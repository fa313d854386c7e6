"""How does a subsample cover the token cloud? Two dimensions of a real layer's tokens."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.errors import MissingExtra
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import capture_of, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard

TITLE = "Subsamples covering the tokens of an article, in two dimensions (t-SNE)"


def _config(paper: bool) -> Config:
    return source("minilm", "Anarchism", 512) | {"seed": 0, "layers": [0, 5], "n": [16, 64, 256]}


def _shards(config: Config) -> list[Shard]:
    return [{**config, "layer": layer} for layer in config["layers"]]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise MissingExtra("t-SNE needs scikit-learn: `pip install scikit-learn`.") from None
    layer = capture_of(shard).layers[shard["layer"]]
    keys = layer.k.transpose(0, 1).flatten(1).double().numpy()  # every head's key of each token
    number = int(seed.generate_state(1)[0])
    flat = TSNE(perplexity=30, init="pca", random_state=number).fit_transform(keys)
    rank = np.random.default_rng(seed).permutation(len(keys))
    gaps = np.linalg.norm(keys[:, None] - keys[None], axis=2)
    cover = [float(gaps[:, rank < n].min(axis=1).mean() / gaps.mean()) for n in shard["n"]]
    frame = pd.DataFrame({"x": flat[:, 0], "y": flat[:, 1], "rank": rank, "layer": shard["layer"]})
    for n, distance in zip(shard["n"], cover, strict=True):
        frame[f"cover_{n}"] = distance
    return frame


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns="shard")


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for layer, part in curves.groupby("layer"):
        for n in config["n"]:
            distance = part[f"cover_{n}"].iloc[0]
            rows.append({"layer": layer, "n": n, "distance to the nearest sampled key": distance})
    return pd.DataFrame(rows)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    panels = []
    for layer, part in curves.groupby("layer"):
        for n in config["n"]:
            inside = part[part["rank"] < n]
            panels.append(
                Panel(
                    f"Layer {layer}, n = {n}",
                    "",
                    "",
                    (
                        Series(part.x, part.y, "points", "all tokens", group="all"),
                        Series(inside.x, inside.y, "points", "subsample", group="subsample"),
                    ),
                    x_scale="linear",
                    y_scale="linear",
                )
            )
    return FigureSpec(TITLE, tuple(panels), columns=3,
                      caption="Keys of all heads of MiniLM, article Anarchism.")  # fmt: skip


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    return ["Distances are measured in the layer's key space, over the mean distance of two keys."]


EXPERIMENT = Experiment(
    "tsne", TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks
)
