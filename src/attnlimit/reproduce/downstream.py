"""What do n keys cost a task? Matching the two halves of Wikipedia articles by their embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.models import capture, wikipedia
from attnlimit.models.load.load import load_once
from attnlimit.models.spend.downstream import article_halves, embed, retrieved
from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.documents import source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.schemes import NAMES, SAMPLERS


class Downstream(Experiment):
    """Accuracy with every layer thinned, by scheme; a row for each article."""

    name = "downstream"
    title = "Retrieval with thinned attention: accuracy against the keys that each query sees"
    schemes: tuple[str, ...] = ("iid", "top", "top+")
    column = "scheme"
    note = "all layers thinned"

    def config(self, paper: bool) -> Config:
        return source("minilm", "all", 128) | {
            "articles": 97 if paper else 60,
            "n": [4, 8, 16, 32, 64],
            "repeats": 3 if paper else 1,
        }

    def shards(self, config: Config) -> list[Shard]:
        return [
            {**config, "scheme": scheme, "size": n, "repeat": repeat}
            for scheme in self.schemes
            for n in config["n"]
            for repeat in range(config["repeats"])
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Embed the first halves with thinned attention and look for the second ones."""
        pairs, first, second, horizon = _task(shard["model"], shard["tokens"], shard["articles"])
        model, number = load_once(shard["model"]), int(seed.generate_state(1)[0])
        sampler = SAMPLERS[shard["scheme"]](shard["size"])
        thin = embed(model, [pair[0] for pair in pairs], sampler, seed=number)
        return pd.DataFrame(
            {
                "scheme": shard["scheme"],
                "n": shard["size"],
                "repeat": shard["repeat"],
                "article": np.arange(len(pairs)),
                "horizon": horizon,
                "hit": retrieved(thin, second),
                "dense_hit": retrieved(first, second),
                "cosine": (thin * first).sum(axis=1),
            }
        )

    def parts(self, curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield the rows that belong together, with their name."""
        return ((NAMES[scheme], part) for scheme, part in groups(curves, "scheme"))

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {
                self.column: name,
                "n": n,
                "accuracy": part.groupby("article")["hit"].mean().mean(),
                "stderr": part.groupby("article")["hit"].mean().sem(),
                "dense accuracy": part["dense_hit"].mean(),
                "cosine to dense": part["cosine"].mean(),
                "median H": part["horizon"].median(),
            }
            for name, some in self.parts(curves)
            for n, part in groups(some, "n")
        )

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        dense = {"accuracy": float(curves["dense_hit"].mean()), "cosine to dense": 1.0}
        titles = ("Finding the other half of an article", "Embedding")
        table, n = self.table(config, curves), config["n"]
        panels = []
        for title, (y, level) in zip(titles, dense.items(), strict=True):
            series = [Series(n, [level] * len(n), "dotted", "dense", "dense")]
            for name, part in groups(table, self.column):
                bars = "stderr" if y == "accuracy" else ""
                line = Series(part["n"], part[y], "line", None, name)
                series += [line, points(part, "n", y, bars, name)]
            panels.append(panel(title, series, y, "keys seen by a query, n", y_scale="linear"))
        caption = (
            f"MiniLM, {config['articles']} articles, passages of {config['tokens']} tokens, "
            f"{self.note}"
        )
        return FigureSpec(self.title, panels, 2, caption)


@lru_cache(maxsize=1)
def _task(name: str, tokens: int, articles: int) -> tuple[list, Array, Array, Array]:
    """Passages, dense embeddings of both halves, and the horizon of each article."""
    model = load_once(name)
    pairs = article_halves(model, wikipedia(), tokens)[:articles]
    first, second = (embed(model, [pair[side] for pair in pairs]) for side in (0, 1))
    horizon = [float(np.median(capture(model, pair[0]).horizons())) for pair in pairs]
    return pairs, first, second, np.array(horizon)


EXPERIMENT = Downstream()
