"""Plans against the forward passes that they are made of."""

from __future__ import annotations

from typing import Any

import torch

from attnlimit import Threshold
from attnlimit.models import load, output_errors, plan, wikipedia
from attnlimit.models.passes import encode
from attnlimit.planning.probes import probe
from attnlimit.planning.target import NextToken
from benchmarks.row import Row, core_seconds

TOKENS, PARTS, PROBES = 512, 4, 4
GRID = [10.0 * 1.32**k for k in range(25)]


def run() -> list[Row]:
    """Return the rows of this suite."""
    torch.set_num_threads(1)
    model = load("smollm2")
    assert model.tokenizer is not None
    ids = model.tokenizer(wikipedia()["Anarchism"].text, verbose=False)["input_ids"]
    texts = [ids[k * TOKENS : (k + 1) * TOKENS] for k in range(PARTS)]

    def forward() -> None:
        with torch.no_grad():
            model.model(torch.tensor([texts[0]]), use_cache=False)

    samplers: dict[str, Any] = {f"c = {c:.3g}": Threshold(c) for c in GRID}
    result = core_seconds(forward, 3)
    four = core_seconds(lambda: _passes(model, texts[0]))
    grid = core_seconds(
        lambda: output_errors(model, texts[0], samplers, probes=PROBES, check=False)
    )
    whole = core_seconds(lambda: plan(model, texts, kl=0.01))
    return [
        Row("25 thresholds by 4 probes, against 4 forward and backward passes", grid, four, 1 / 3),
        Row("plan --kl 0.01 on 4 x 512 tokens, against a forward pass", whole, result, 1 / 160),
    ]


def _passes(model: Any, text: list[int]) -> None:
    """Four forward and backward passes, nothing else: each forward pass is run anew."""
    encoded = encode(model, text)
    for seed in range(PROBES):
        probe(model.model, encoded, NextToken(), 1, seed, lambda layer: None)
