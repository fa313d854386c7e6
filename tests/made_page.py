"""A plan of a made model on made passages, whose names try to be markup, and its page."""

from __future__ import annotations

import torch

from attnlimit.models import LoadedModel
from attnlimit.models.texts import Passage, Passages
from attnlimit.planning.calibration import calibration_of
from attnlimit.planning.comparison import compare
from attnlimit.planning.target import EmbeddingAngle
from attnlimit.report.model_page import PageSource, model_page

HOSTILE = "<script>alert(1)</script>"


def made_model(layers=2, heads=3):
    """Return an untrained BERT."""
    import transformers

    torch.manual_seed(5)
    shape = {"num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 64}
    config = transformers.BertConfig(
        **shape,
        hidden_size=8 * heads,
        intermediate_size=16,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    config._attn_implementation = "eager"
    network = transformers.BertModel(config).eval()
    return LoadedModel("made<b>model</b>", network, None, "0" * 64, "made", "none")


def made_comparison(layers=2, heads=3, tokens=24):
    """Return the plan of a made model with its alternatives, measured."""
    loaded, ids = made_model(layers, heads), tuple(range(tokens))
    passages = Passages(
        (Passage("wikipedia:Made", "made", "none", 0, ids),),
        Passage("wikipedia:Made", "made", "none", 1, ids[::-1]),
    )
    target = EmbeddingAngle(0.001)
    calibration = calibration_of(loaded, passages.ids, target, probes=4, seed=0)
    return compare(loaded, passages, calibration, target, options={}, repeats=2, curves=True)


def made_page(path, comparison=None, decoding=None, **shape):
    """Write the page of a made model, and return its path."""
    record = {"created": "now", "version": "0", "versions": {}, "config": {"seed": 0}}
    source = PageSource("--model made", f"wikipedia:{HOSTILE}", (), HOSTILE, "none", "none")
    result = made_comparison(**shape) if comparison is None else comparison
    path.write_text(model_page(record, result, source, path.parent, decoding))
    return path
