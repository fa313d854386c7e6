"""A small run on a made model, whose tokens try to be markup."""

import numpy as np
import pandas as pd
import torch

from attnlimit.models.capture.captured import CapturedLayer
from attnlimit.models.capture.masks import Mask
from attnlimit.models.captures import Capture
from attnlimit.reproduce import model as experiment
from attnlimit.runs import RunFolder

HOSTILE = "<script>alert(1)</script>"


def made_capture(layers=2, heads=3, tokens=24):
    generator = torch.Generator().manual_seed(3)
    kept = {}
    for layer in range(layers):
        q, k, v = (torch.randn(heads, tokens, 4, generator=generator) for _ in range(3))
        scale = torch.tensor([0.1, 1.0, 6.0])[:heads, None, None]
        kept[layer] = CapturedLayer(
            q * scale, k, v + 1, Mask(torch.arange(tokens), None, False), 0.5, None, None
        )
    names = [HOSTILE, "</script>", "&amp;", '"quoted"'] + [f"word{i}" for i in range(tokens - 4)]
    return Capture(
        layers=kept,
        tokens=tuple(names),
        positions=torch.arange(tokens),
        special=torch.zeros(tokens, dtype=torch.bool),
        depth=layers,
        heads=heads,
    )


def made_run(root, monkeypatch, text="wikipedia:Made", **shape):
    """Write the run folder of a made model, finished, under `root`."""
    capture = made_capture(**shape)
    monkeypatch.setattr(experiment, "captures_for", lambda config: (capture,))
    config = {
        "model": "made<b>model</b>",
        "weights": "0" * 64,
        "weights_licence": "none",
        "notes": [],
        "text": text,
        "text_source": "made",
        "text_licence": "none",
        "ids": list(range(len(capture))),
        "tokens": len(capture),
        "part": 0,
        "others": [],
        "layers": list(capture.layers),
        "heads": capture.heads,
        "epsilon": 0.3,
        "delta": 0.1,
        "quantile": 0.9,
        "queries": 24,
        "replicates": 20,
        "seed": 0,
    }
    folder = RunFolder.prepare(root, "model", config)
    shards = experiment.EXPERIMENT.shards(config)
    rows = [
        experiment.EXPERIMENT.compute(shard, np.random.SeedSequence(index))
        for index, shard in enumerate(shards)
    ]
    folder.write_table("curves", pd.concat(rows, ignore_index=True))
    return folder
