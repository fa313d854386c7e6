"""Downstream accuracy on n keys: passages retrieve their article."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.constants import COSINE_LIMIT
from attnlimit.errors import BadInput
from attnlimit.intervals import resampled_means
from attnlimit.models.loading import load_once
from attnlimit.models.sampled import Samplers, embed
from attnlimit.models.texts import split_tokens, wikipedia
from attnlimit.picture import REFERENCE, FigureSpec, Panel, Series
from attnlimit.planning.error import output_errors
from attnlimit.planning.target import third_order
from attnlimit.reproduce.compare import OWN, groups, where, with_z
from attnlimit.reproduce.documents import NAMES, SAMPLERS, source
from attnlimit.reproduce.experiment import TSC, Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.result import format_pm

ENDS = 2
"""Passages of an article that are no queries: the first and the last have one neighbour."""
BLOCK, FEW = 256, 8
"""Passages that a shard embeds, and predicts."""
KNOWN = ["place", "scheme", "n", "predicted_loss", "trusted", "horizon"]
"""Columns that are known of a text before it is thinned."""
QUESTIONS = {
    "article": "finds its article",
    "neighbour": "finds the passage beside it",
}
KEYS, LOSS = "keys seen by a query, n", "1 - cosine of the embedding"
Parts = Iterable[tuple[str, pd.DataFrame]]


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Texts as token ids, the document of each, and those that are queries."""

    ids: list[list[int]]
    documents: np.ndarray  # (P,)
    queries: np.ndarray  # (Q,) places


@lru_cache(maxsize=2)
def _articles(name: str, tokens: int, articles: int, most: int, each: int) -> RetrievalTask:
    """At most `most` passages of some articles, `each` of them queries, evenly spaced."""
    model = load_once(name)
    ids: list[list[int]] = []
    documents: list[int] = []
    queries: list[int] = []
    for number, document in enumerate(wikipedia().documents[:articles]):
        passages = split_tokens(model, document.text, tokens)[:most]
        if len(passages) < each + ENDS:
            continue
        inner = np.linspace(1, len(passages) - ENDS, each).round().astype(int)
        queries += (len(ids) + inner).tolist()
        ids += passages
        documents += [number] * len(passages)
    if len(set(documents)) < ENDS:
        raise BadInput(
            f"Fewer than two articles have {each + ENDS} passages of {tokens} tokens; use fewer."
        )
    return RetrievalTask(ids, np.array(documents), np.array(queries))


def retrieval_task(config: Config) -> RetrievalTask:
    """Return the task of a configuration, built once in a process."""
    sizes = (config[name] for name in ("tokens", "articles", "passages", "queries"))
    return _articles(config["model"], *sizes)


@dataclass(frozen=True, eq=False)
class Retriever:
    """Retrieval by embeddings of the queries among the dense embeddings of all texts."""

    task: RetrievalTask
    dense: Array  # (P, d) unit vectors

    def hits(self, vectors: Array) -> dict[str, np.ndarray]:
        """Whether each query, (Q,), finds what it looks for, by question."""
        task, queries = self.task, self.task.queries
        similar = vectors @ self.dense.T
        similar[np.arange(len(queries)), queries] = -np.inf
        best = similar.argmax(axis=1)
        same = task.documents[best] == task.documents[queries]
        return {"article": same, "neighbour": same & (abs(best - queries) == 1)}

    def loss(self, vectors: Array) -> Array:
        """1 - cosine with the dense embedding of the same text, (Q,)."""
        return np.asarray(1 - (vectors * self.dense[self.task.queries]).sum(axis=1))


def _stored(places: np.ndarray, vectors: Array, **about: Any) -> pd.DataFrame:
    rows = {"place": places, "vector": list(vectors.astype(np.float32))}
    return pd.DataFrame(rows).assign(**about)


def _vectors(rows: pd.DataFrame) -> Array:
    return np.stack(rows["vector"].to_list()).astype(float)


def mean_of(rows: pd.DataFrame, column: str) -> tuple[float, float]:
    """Return the mean of a column and its standard error by bootstrap over documents."""
    values = rows[column].to_numpy(float)
    resampled = resampled_means(values, rows["document"].to_numpy())
    return float(values.mean()), float(resampled.std(ddof=1))


def means_of(parts: Parts) -> pd.DataFrame:
    """Means over texts with errors by bootstrap over documents, a row for each part and n."""
    rows = []
    for name, some in parts:
        for n, part in groups(some, "n"):
            row: dict[str, Any] = {"part": name, "n": int(n)}
            for key in ("loss", *QUESTIONS):
                row[key], row[f"{key} stderr"] = mean_of(part, key)
            known = part.dropna(subset=["predicted_loss"])
            row["predicted_loss"] = known["predicted_loss"].mean()
            row["trusted"] = known["trusted"].mean()
            rows.append(row)
    return pd.DataFrame(rows)


def formatted(means: pd.DataFrame) -> pd.DataFrame:
    """Format every mean with its standard error, in columns named by their question."""
    shown = means[["part", "n"]].copy()
    for key, name in (QUESTIONS | {"loss": "1 - cosine"}).items():
        if key in means:
            both = means[[key, f"{key} stderr"]].to_numpy(float)
            shown[name] = [format_pm(*pair) for pair in both]
    return shown


def dense_accuracy(curves: pd.DataFrame, question: str) -> tuple[float, float]:
    """Return the share of texts that find it with all keys, and its standard error."""
    return mean_of(curves.drop_duplicates("place"), f"dense {question}")


def accuracy_panel(
    title: str, means: pd.DataFrame, curves: pd.DataFrame, question: str, legend: bool = True
) -> Panel:
    """Share of texts that find it, against n, beside that with all keys."""
    n = sorted(means["n"].unique())
    level, _ = dense_accuracy(curves, question)
    series = [
        Series(n, [level] * len(n), "dotted", "all keys", REFERENCE),
        *(
            points(part, "n", question, f"{question} stderr", name if legend else None, name)
            for name, part in groups(means, "part")
        ),
    ]
    about = {"y_scale": "linear", "y_limits": (0.0, 1.0)}
    return panel(title, series, "share that finds it", KEYS, **about)


class Downstream(Experiment):
    """Accuracy with every layer of the query text thinned, in three ways to choose n keys.

    All other texts are read densely; the error of the embedding is predicted end to end.
    """

    name = "downstream"
    title = "Retrieval with sampled attention: accuracy against the keys that each query sees"
    paper = TSC
    figure_of_paper = "experiment: downstream accuracy"
    minutes = 5
    settings = source("minilm", "all", 64) | {
        "articles": 97,
        "passages": 20,
        "queries": 1,
        "repeats": 1,
        "n": [1, 2, 4, 8, 16, 64, 256, 1024],
        "predicted": 24,
        "probes": 4,
    }
    paper_settings = {
        "tokens": 128,
        "passages": 60,
        "queries": 4,
        "repeats": 3,
        "predicted": 96,
        "probes": 8,
    }

    def schemes(self, config: Config) -> dict[str, list[int]]:
        """Ways to choose keys, with the sizes of each."""
        few = [n for n in config["n"] if n < config["tokens"]]
        return {"iid": config["n"], "top": few, "top+": [n for n in few if n > 1]}

    def samplers(self, scheme: str, n: int, config: Config) -> Samplers:
        """Return the samplers of a scheme at one size."""
        return SAMPLERS[scheme](n)

    def predict(self, shard: Shard, place: int, seed: int) -> pd.DataFrame:
        """Predict 1 - cosine of one text's embedding, by `scheme` and `n`, where keys are drawn."""
        drawn = {key: sizes for key, sizes in self.schemes(shard).items() if key != "top"}
        cases = {f"{key} {n}": (key, n) for key, sizes in drawn.items() for n in sizes}
        samplers = {name: self.samplers(*case, shard) for name, case in cases.items()}
        model, ids = load_once(shard["model"]), retrieval_task(shard).ids[place]
        how: dict[str, Any] = {"probes": shard["probes"], "seed": seed, "check": False}
        errors = output_errors(model, ids, samplers, **how)
        rows = [(*cases[name], error.value, float(error.trusted)) for name, error in errors.items()]
        return pd.DataFrame(rows, columns=["scheme", "n", "predicted_loss", "trusted"])

    def predicted(self, config: Config) -> np.ndarray:
        """Places of the texts with predictions, evenly spaced."""
        queries = retrieval_task(config).queries
        count = min(config["predicted"], len(queries))
        return queries[np.linspace(0, len(queries) - 1, count).round().astype(int)]

    def shards(self, config: Config) -> list[Shard]:
        texts = len(retrieval_task(config).ids)
        dense: list[Shard] = [{"dense": start} for start in range(0, texts, BLOCK)]
        few = [{"predict": start} for start in range(0, len(self.predicted(config)), FEW)]
        thin = [
            {"scheme": scheme, "size": n, "repeat": repeat}
            for scheme, sizes in self.schemes(config).items()
            for n in sizes
            for repeat in range(config["repeats"])
        ]
        return [{**config, **part} for part in [*dense, *few, *thin]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Embed some passages, embed all thinned queries, or predict the errors of a few."""
        task, number = retrieval_task(shard), int(seed.generate_state(1)[0])
        model = load_once(shard["model"])
        if "predict" in shard:
            places = self.predicted(shard)[shard["predict"] :][:FEW]
            rows = [self.predict(shard, int(place), number).assign(place=place) for place in places]
            return pd.concat(rows, ignore_index=True).assign(kind="predicted")
        if "dense" in shard:
            places = np.arange(len(task.ids))[shard["dense"] :][:BLOCK]
            return _stored(
                places, embed(model, [task.ids[place] for place in places]), kind="dense"
            )
        thinned = self.samplers(shard["scheme"], shard["size"], shard)
        vectors = embed(model, [task.ids[place] for place in task.queries], thinned, seed=number)
        about = {"scheme": shard["scheme"], "n": shard["size"], "repeat": shard["repeat"]}
        return _stored(task.queries, vectors, kind="thin", **about)

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Accuracy and loss of every query, beside what was predicted."""
        task = retrieval_task(config)
        retriever = Retriever(task, _vectors(where(rows, kind="dense").sort_values("place")))
        before = retriever.hits(retriever.dense[task.queries])
        frames = []
        for (scheme, n, repeat), part in groups(where(rows, kind="thin"), "scheme", "n", "repeat"):
            vectors = _vectors(part)
            after = retriever.hits(vectors) | {f"dense {key}": hit for key, hit in before.items()}
            frame = pd.DataFrame(after).astype(float).assign(loss=retriever.loss(vectors))
            frame = frame.assign(scheme=scheme, n=int(n), repeat=int(repeat))
            frames.append(frame.assign(place=task.queries, document=task.documents[task.queries]))
        known = where(rows, kind="predicted").reindex(columns=KNOWN)
        return pd.concat(frames, ignore_index=True).merge(known, "left", on=KNOWN[:3])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        means = means_of(_parts(curves))
        trusted = means["trusted"].map("{:.0%}".format, na_action="ignore")
        z = with_z(_trusted(curves))[["part", "n", "z"]]
        shown = formatted(means).assign(predicted=means["predicted_loss"], trusted=trusted)
        return shown.merge(z, "left", on=["part", "n"]).rename(columns={"part": "scheme"})

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """Errors of the texts whose prediction is trusted; None where none is."""
        trusted = _trusted(curves)
        return None if trusted.empty else trusted

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            f"{curves['place'].nunique()} queries of {curves['document'].nunique()} documents; "
            "errors are by bootstrap over documents.",
            *(
                f"With all keys the share that {QUESTIONS[key]} is "
                f"{format_pm(*dense_accuracy(curves, key))}."
                for key in QUESTIONS
            ),
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        means = means_of(_parts(curves))
        panels = [
            accuracy_panel(QUESTIONS[key].capitalize(), means, curves, key, legend=not k)
            for k, key in enumerate(QUESTIONS)
        ]
        caption = (
            f"MiniLM, Wikipedia articles, passages of {config['tokens']} tokens; all layers of the "
            "query are thinned. Points: measured. Lines: predicted by second order, dotted past "
            f"1 - cosine = {COSINE_LIMIT:g}, where it is not to be trusted"
        )
        return FigureSpec(self.title, [*panels, _loss_panel(means)], 3, caption)


def _parts(curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    return ((NAMES[scheme], part) for scheme, part in groups(curves, "scheme"))


def _trusted(curves: pd.DataFrame) -> pd.DataFrame:
    """Errors of the texts whose prediction is trusted, with the standard error of their gap."""
    rows = []
    for name, some in _parts(curves[curves["trusted"] == 1]):
        for n, part in groups(some, "n"):
            means = part.groupby("document")[["predicted_loss", "loss"]].mean()
            gap = means["loss"] - means["predicted_loss"]
            if len(gap) > 1:
                rows.append((name, int(n), *means.mean(), gap.sem()))
    frame = pd.DataFrame(rows, columns=["part", "n", "predicted", "measured", "stderr"])
    return frame.assign(**{OWN: third_order(frame["predicted"], COSINE_LIMIT)})


def _loss_panel(means: pd.DataFrame) -> Panel:
    """1 - cosine, measured and predicted, dotted where predictions are not trusted."""
    series = []
    for name, part in groups(means, "part"):
        known = part[part["predicted_loss"] < 1]
        for style, some in (("dotted", known), ("line", known[known["trusted"] > 0.5])):
            series.append(Series(some["n"], some["predicted_loss"], style, None, name))
        series.append(points(part, "n", "loss", "loss stderr", None, name))
    return panel("Error of the embedding", series, LOSS, KEYS)


EXPERIMENT = Downstream()
