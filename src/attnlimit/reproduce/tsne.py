"""How does a subsample cover the token cloud? Two dimensions of a real layer's tokens."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from attnlimit.errors import MissingExtra
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.documents import capture_of, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import LINEAR, panel
from attnlimit.reproduce.rows import groups


class TokenCloud(Experiment):
    """Keys of all heads of a layer, and how near the nearest sampled one is."""

    name = "tsne"
    takes_capture = True
    title = "Subsamples covering the tokens of an article, in two dimensions (t-SNE)"

    def config(self, paper: bool) -> Config:
        return source("minilm", "Anarchism", 512) | {"layers": [0, 5], "n": [16, 64, 256]}

    def shards(self, config: Config) -> list[Shard]:
        return [{**config, "layer": layer} for layer in config["layers"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        try:
            from sklearn.manifold import TSNE
        except ImportError:
            raise MissingExtra("t-SNE needs scikit-learn: `pip install scikit-learn`.") from None
        layer = capture_of(shard).layers[shard["layer"]]
        keys = layer.k.transpose(0, 1).flatten(1).double().numpy()  # all heads' keys of a token
        number = int(seed.generate_state(1)[0])
        flat = TSNE(perplexity=30, init="pca", random_state=number).fit_transform(keys)
        rank = np.random.default_rng(seed).permutation(len(keys))
        gaps = cdist(keys, keys)
        nearest = {n: gaps[:, rank < n].min(axis=1).mean() for n in shard["n"]}
        cover = {f"cover_{n}": gap / gaps.mean() for n, gap in nearest.items()}
        frame = pd.DataFrame({"x": flat[:, 0], "y": flat[:, 1], "rank": rank})
        return frame.assign(layer=shard["layer"], **cover)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = [
            (layer, n, part[f"cover_{n}"].iloc[0])
            for layer, part in groups(curves, "layer")
            for n in config["n"]
        ]
        columns = ["layer", "n", "distance to the nearest sampled key"]
        return pd.DataFrame(rows, columns=columns)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            "Distances are measured in the layer's key space, over the mean distance of two keys."
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for layer, part in groups(curves, "layer"):
            for n in config["n"]:
                inside = part[part["rank"] < n]
                series = (
                    Series(part["x"], part["y"], "points", "all tokens", REFERENCE),
                    Series(inside["x"], inside["y"], "points", "subsample", "subsample"),
                )
                panels.append(panel(f"Layer {layer}, n = {n}", series, "", "", **LINEAR))
        caption = "Keys of all heads of MiniLM, article Anarchism."
        return FigureSpec(self.title, panels, 3, caption)


EXPERIMENT = TokenCloud()
