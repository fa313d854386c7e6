"""Which model and text do the experiments on real transformers use? Named, hashed and licensed."""

from __future__ import annotations

from functools import lru_cache

from attnlimit.models import Capture, LoadedModel, capture, load, wikipedia
from attnlimit.models.load.bundled import BUNDLED
from attnlimit.reproduce.experiment import Config


def source(model: str, title: str, tokens: int) -> Config:
    """What a run records of its model and text; part of its key."""
    bundled = BUNDLED[model]
    return {
        "model": model,
        "weights": bundled.sha256,
        "weights_note": bundled.note,
        "weights_licence": bundled.licence,
        "text": f"wikipedia:{title}",
        "text_licence": "CC BY-SA 3.0 and GFDL",
        "tokens": tokens,
    }


@lru_cache(maxsize=2)
def model_named(name: str, pickled: str | None = None) -> LoadedModel:
    """Load a model once in a process."""
    return load(name, pickled)


@lru_cache(maxsize=2)
def captured(name: str, text: str, tokens: int, layers: tuple[int, ...] | None = None) -> Capture:
    """Capture the first `tokens` tokens of an article, once in a process."""
    model = model_named(name)
    document = wikipedia()[text.removeprefix("wikipedia:")]
    assert model.tokenizer is not None
    ids = model.tokenizer(document.text, verbose=False)["input_ids"]
    if len(ids) > tokens and not model.causal:
        ids = [*ids[: tokens - 1], ids[-1]]
    return capture(model, ids[:tokens], layers=layers)


def capture_of(shard: Config, layers: tuple[int, ...] | None = None) -> Capture:
    """Capture what a shard's configuration names."""
    return captured(shard["model"], shard["text"], shard["tokens"], layers)
