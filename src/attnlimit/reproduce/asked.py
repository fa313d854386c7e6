"""How is a task asked of a thinned encoder? Its texts, embedded once densely and again on n keys.

Only texts that are asked are thinned, and what each finds is looked up when all are there, so a
shard is a block of passages, or all that are asked at one size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.models.load.labelled import read_labelled
from attnlimit.models.load.load import load_once
from attnlimit.models.spend.assign import Samplers
from attnlimit.models.spend.downstream import embed
from attnlimit.reproduce.documents import source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.lookup import Finder, lookup
from attnlimit.reproduce.rows import groups, where

BLOCK = 256  # passages embedded, and
FEW = 8  # predicted, by a shard
NOISE, NOISE_LEVELS, NOISE_DRAWS = "noise", np.geomspace(0.01, 0.95, 14), 5
KNOWN = ["place", "way", "n", "predicted_loss", "trusted", "horizon"]
"""What is known of a text before it is thinned."""


class Asked(Experiment):
    """Accuracy with every layer of the asking text thinned; all other texts are read densely."""

    def task(self, paper: bool) -> Config:
        """Return the settings that such experiments share."""
        return source("minilm", "all", 128 if paper else 64) | {
            "articles": 97,
            "passages": 60 if paper else 20,
            "asked": 4 if paper else 1,
            "repeats": 3 if paper else 1,
            "labelled": "",
            "texts": 3000 if paper else 1000,
        }

    def configured(
        self, overrides: Mapping[str, Any] | None = None, *, paper: bool = False, seed: int = 0
    ) -> Config:
        """Return the configuration; labelled texts are part of its key."""
        config = super().configured(overrides, paper=paper, seed=seed)
        if config["labelled"]:
            config["file"] = read_labelled(config["labelled"]).sha256
        return config

    @abstractmethod
    def ways(self, config: Config) -> dict[str, list[int]]:
        """Ways to choose keys, by the sizes at which each is tried."""

    @abstractmethod
    def samplers(self, way: str, n: int, config: Config) -> Samplers:
        """Return the samplers of a way at one size."""

    @abstractmethod
    def predict(self, shard: Shard, place: int, seed: int) -> pd.DataFrame:
        """Return what is known of a text before it is thinned, by `way` and `n`."""

    def predicted(self, config: Config) -> np.ndarray:
        """Places of the texts of which something is predicted, evenly spaced."""
        asked = lookup(config).asked
        count = min(config["predicted"], len(asked))
        return asked[np.linspace(0, len(asked) - 1, count).round().astype(int)]

    def shards(self, config: Config) -> list[Shard]:
        dense: list[Shard] = [
            {"dense": start} for start in range(0, len(lookup(config).ids), BLOCK)
        ]
        few = [{"predict": start} for start in range(0, len(self.predicted(config)), FEW)]
        thin = [
            {"way": way, "size": n, "repeat": repeat}
            for way, sizes in self.ways(config).items()
            for n in sizes
            for repeat in range(config["repeats"])
        ]
        return [{**config, **one} for one in [*dense, *few, *thin]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Embed some passages, thin all that are asked, or predict what thinning does to a few."""
        task, number = lookup(shard), int(seed.generate_state(1)[0])
        model = load_once(shard["model"])
        if "predict" in shard:
            places = self.predicted(shard)[shard["predict"] :][:FEW]
            rows = [self.predict(shard, int(one), number).assign(place=one) for one in places]
            return pd.concat(rows, ignore_index=True).assign(kind="predicted")
        if "dense" in shard:
            places = np.arange(len(task.ids))[shard["dense"] :][:BLOCK]
            vectors = embed(model, [task.ids[one] for one in places])
            return _stored(places, vectors).assign(kind="dense")
        thinned = self.samplers(shard["way"], shard["size"], shard)
        vectors = embed(model, [task.ids[one] for one in task.asked], thinned, seed=number)
        return _stored(task.asked, vectors).assign(
            kind="thin", way=shard["way"], n=shard["size"], repeat=shard["repeat"]
        )

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Ask every question of every embedding."""
        task = lookup(config)
        finder = Finder(task, _vectors(where(rows, kind="dense").sort_values("place")))
        before = finder.found(finder.dense[task.asked])
        frames = []
        for (way, n, repeat), part in groups(where(rows, kind="thin"), "way", "n", "repeat"):
            vectors = _vectors(part)
            after = finder.found(vectors) | {f"dense {key}": hit for key, hit in before.items()}
            frame = pd.DataFrame(after).astype(float)
            frame = frame.assign(way=way, n=int(n), repeat=int(repeat), loss=finder.loss(vectors))
            frames.append(frame.assign(place=task.asked, document=task.documents[task.asked]))
        known = where(rows, kind="predicted").reindex(columns=KNOWN)
        curves = pd.concat(frames, ignore_index=True).merge(known, "left", on=KNOWN[:3])
        return pd.concat([curves, *_shaken(finder)], ignore_index=True)


def _shaken(finder: Finder) -> Iterator[pd.DataFrame]:
    """What noise of a given size and no preferred direction would do."""
    rng = np.random.default_rng(0)
    for level in NOISE_LEVELS:
        drawn = [finder.found(finder.shaken(level, rng)) for _ in range(NOISE_DRAWS)]
        found = {key: np.mean([one[key] for one in drawn]) for key in drawn[0]}
        yield pd.DataFrame([found | {"way": NOISE, "loss": level}])


def _stored(places: np.ndarray, vectors: Array) -> pd.DataFrame:
    return pd.DataFrame({"place": places, "vector": list(vectors.astype(np.float32))})


def _vectors(rows: pd.DataFrame) -> Array:
    return np.stack(rows["vector"].to_list()).astype(float)
