"""What do n keys cost a task? Matching the two halves of Wikipedia articles by their embeddings."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.models import capture, wikipedia
from attnlimit.models.spend.downstream import article_halves, embed, retrieved
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import model_named, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.samplers import Iid, Keep, Sampler, TopK

TITLE = "Retrieval with thinned attention: accuracy against the keys that each query sees"
NAMES = {
    "iid": "i.i.d.",
    "top": "top n",
    "top+": "top n/4 + weighted rest",
}


def config(paper: bool) -> Config:
    """Return the configuration that both downstream experiments share."""
    return source("minilm", "all", 128) | {
        "seed": 0,
        "articles": 97 if paper else 60,
        "n": [4, 8, 16, 32, 64],
        "repeats": 3 if paper else 1,
    }


def shards(config: Config) -> list[Shard]:
    """One for each scheme, n and repeat."""
    return [
        {**config, "scheme": scheme, "size": n, "repeat": repeat}
        for scheme in NAMES
        for n in config["n"]
        for repeat in range(config["repeats"])
    ]


@lru_cache(maxsize=1)
def _task(name: str, tokens: int, articles: int) -> tuple[list, Array, Array, Array]:
    """Passages, dense embeddings of both halves, and the horizon of each article."""
    model = model_named(name)
    pairs = article_halves(model, wikipedia(), tokens)[:articles]
    first, second = (embed(model, [pair[side] for pair in pairs]) for side in (0, 1))
    horizon = [float(np.median(capture(model, pair[0]).horizons())) for pair in pairs]
    return pairs, first, second, np.array(horizon)


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """Embed the first halves with thinned attention and look for the second ones."""
    pairs, first, second, horizon = _task(shard["model"], shard["tokens"], shard["articles"])
    n, scheme = shard["size"], shard["scheme"]
    quarter = max(1, n // 4)
    sampler: Sampler = Iid(n)
    if scheme == "top":
        sampler = TopK(n)
    elif scheme == "top+":
        sampler = Keep(TopK(quarter), sample=n - quarter)
    number = int(seed.generate_state(1)[0])
    model = model_named(shard["model"])
    thin = embed(model, [pair[0] for pair in pairs], sampler, seed=number)
    return pd.DataFrame(
        {
            "scheme": scheme,
            "n": n,
            "repeat": shard["repeat"],
            "article": np.arange(len(pairs)),
            "horizon": horizon,
            "hit": retrieved(thin, second),
            "dense_hit": retrieved(first, second),
            "cosine": (thin * first).sum(axis=1),
        }
    )


def combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    """Keep every article's row."""
    return rows.drop(columns="shard")


def accuracy(part: pd.DataFrame) -> tuple[float, float]:
    """Accuracy and its standard error over articles."""
    by_article = part.groupby("article").hit.mean()
    return float(by_article.mean()), float(by_article.std(ddof=1) / len(by_article) ** 0.5)


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (scheme, n), part in curves.groupby(["scheme", "n"], sort=False):
        value, stderr = accuracy(part)
        rows.append(
            {
                "scheme": NAMES[str(scheme)],
                "n": n,
                "accuracy": value,
                "stderr": stderr,
                "cosine to dense": part.cosine.mean(),
                "dense accuracy": part.dense_hit.mean(),
            }
        )
    return pd.DataFrame(rows)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    dense = float(curves.dense_hit.mean())
    left = [Series(config["n"], [dense] * len(config["n"]), "dotted", "dense", group="dense")]
    right = [Series(config["n"], [1.0] * len(config["n"]), "dotted", "dense", group="dense")]
    for scheme, name in NAMES.items():
        part = curves[curves.scheme == scheme]
        found = [accuracy(part[part.n == n]) for n in config["n"]]
        values, errors = np.array(found).T
        left.append(Series(config["n"], values, "line", None, group=scheme))
        left.append(Series(config["n"], values, "points", name, group=scheme, error=errors))
        cosine = part.groupby("n").cosine.mean()
        right.append(Series(cosine.index, cosine, "line", None, group=scheme))
        right.append(Series(cosine.index, cosine, "points", name, group=scheme))
    return FigureSpec(
        TITLE,
        (
            Panel("Finding the other half of an article", "keys seen by a query, n", "accuracy",
                  tuple(left), y_scale="linear"),
            Panel("Embedding", "keys seen by a query, n", "cosine to the dense embedding",
                  tuple(right), y_scale="linear"),
        ),
        caption=f"MiniLM, {config['articles']} articles, passages of {config['tokens']} tokens, "
        "all layers thinned.",
    )  # fmt: skip


EXPERIMENT = Experiment("downstream", TITLE, config, shards, compute, combine, _figure, _table)
