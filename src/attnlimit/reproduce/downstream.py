"""What do n keys cost a task? Passages that look for their article, or texts for their label."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from attnlimit.models import output_errors
from attnlimit.models.load.load import load_once
from attnlimit.models.output.target import ANGLE_LIMIT, third_order
from attnlimit.models.spend.assign import Samplers
from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.reproduce.answers import (
    KEYS,
    LOSS,
    QUESTIONS,
    answers,
    asked_of,
    dense_line,
    dense_of,
    means_of,
    told,
)
from attnlimit.reproduce.asked import NOISE, Asked
from attnlimit.reproduce.compare import OWN, plus_minus, with_z
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.lookup import lookup
from attnlimit.reproduce.panels import panel, points
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.schemes import NAMES, SAMPLERS


class Downstream(Asked):
    """Three ways to choose n keys, all layers thinned, and their error predicted end to end."""

    name = "downstream"
    title = "A task with thinned attention: accuracy against the keys that each query sees"

    def config(self, paper: bool) -> Config:
        return self.task(paper) | {
            "n": [1, 2, 4, 8, 16, 64, 256, 1024],
            "predicted": 96 if paper else 24,
            "probes": 8 if paper else 4,
        }

    def ways(self, config: Config) -> dict[str, list[int]]:
        few = [n for n in config["n"] if n < config["tokens"]]
        return {"iid": config["n"], "top": few, "top+": [n for n in few if n > 1]}

    def samplers(self, way: str, n: int, config: Config) -> Samplers:
        return SAMPLERS[way](n)

    def predict(self, shard: Shard, place: int, seed: int) -> pd.DataFrame:
        """Predict 1 - cosine of one text's embedding, for every way that draws its keys."""
        drawn = {way: sizes for way, sizes in self.ways(shard).items() if way != "top"}
        asked = {f"{way} {n}": (way, n) for way, sizes in drawn.items() for n in sizes}
        samplers = {name: self.samplers(*one, shard) for name, one in asked.items()}
        model, ids = load_once(shard["model"]), lookup(shard).ids[place]
        found = output_errors(model, ids, samplers, probes=shard["probes"], seed=seed)
        rows = [(*asked[name], one.value, float(one.trusted)) for name, one in found.items()]
        return pd.DataFrame(rows, columns=["way", "n", "predicted_loss", "trusted"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        means = means_of(_parts(curves))
        z = with_z(_trusted(curves))[["part", "n", "z"]]
        return (
            told(means)
            .assign(
                predicted=means["predicted_loss"],
                trusted=means["trusted"].map("{:.0%}".format, na_action="ignore"),
            )
            .merge(z, "left", on=["part", "n"])
            .rename(columns={"part": "scheme"})
        )

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """Errors of the texts whose prediction is trusted; nothing where none is."""
        found = _trusted(curves)
        return None if found.empty else found

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        drawn = curves[curves["way"] != NOISE]
        said = [
            f"With all keys the share that {QUESTIONS[key]} is {plus_minus(*dense_of(drawn, key))}."
            for key in asked_of(curves)
        ]
        return [
            f"{drawn['place'].nunique()} texts of {drawn['document'].nunique()} documents ask; "
            "errors are by bootstrap over documents.",
            *said,
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        means, noise = means_of(_parts(curves)), curves[curves["way"] == NOISE]
        drawn = curves[curves["way"] != NOISE]
        panels = [_errors(means)]
        for k, key in enumerate(asked_of(curves)):
            title = QUESTIONS[key].capitalize()
            dense = dense_line(drawn, key, config["n"])
            panels.insert(k, answers(title, means, key, beside=[dense], legend=not k))
            line = Series(noise["loss"], noise[key], "line", "noise of that size", NOISE)
            panels.append(answers(f"{title}, by the error", means, key, "loss", [line], False))
        what = "labelled texts" if config["labelled"] else "Wikipedia articles"
        caption = (
            f"MiniLM, {what}, passages of {config['tokens']} tokens; all layers of the passage "
            "that asks are thinned. Points: measured. Lines: error predicted by second order, "
            f"dotted past 1 - cosine = {ANGLE_LIMIT:g}, where it is not to be trusted; and what "
            "noise of no preferred direction would do to the embeddings"
        )
        return FigureSpec(self.title, panels, 3 if len(panels) > 3 else 2, caption)


def _trusted(curves: pd.DataFrame) -> pd.DataFrame:
    """Errors of the texts whose prediction is trusted, and how sure their distance is."""
    rows = []
    for name, some in _parts(curves[curves["trusted"] == 1]):
        for n, part in groups(some, "n"):
            means = part.groupby("document")[["predicted_loss", "loss"]].mean()
            gap = means["loss"] - means["predicted_loss"]
            if len(gap) > 1:
                rows.append((name, int(n), *means.mean(), gap.sem()))
    found = pd.DataFrame(rows, columns=["part", "n", "predicted", "measured", "stderr"])
    return found.assign(**{OWN: third_order(found["predicted"], ANGLE_LIMIT)})


def _errors(means: pd.DataFrame) -> Panel:
    """Draw 1 - cosine, measured and predicted, and up to where predictions are trusted."""
    series = []
    for name, part in groups(means, "part"):
        known = part[part["predicted_loss"] < 1]
        for style, some in (("dotted", known), ("line", known[known["trusted"] > 0.5])):
            series.append(Series(some["n"], some["predicted_loss"], style, None, name))
        series.append(points(part, "n", "loss", "loss stderr", None, name))
    return panel("Error of the embedding", series, LOSS, KEYS)


def _parts(curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    return ((NAMES[way], part) for way, part in groups(curves, "way") if way != NOISE)


EXPERIMENT = Downstream()
