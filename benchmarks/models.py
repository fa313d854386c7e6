"""Real models: predicted curves against forward passes and Monte Carlo."""

from __future__ import annotations

import torch

from attnlimit.models import Capture, capture, load, wikipedia
from attnlimit.models.curves import measure_capture, predict_capture
from attnlimit.theory.one_query.population import population_law
from benchmarks.row import Row, fresh, peak_megabytes, wall_seconds

COUNTS = [16, 23, 32, 45, 64, 91, 128, 181, 256, 384]
REPLICATES = 500
LONG = 4096
ALLOWED_GB = 6.0


def run() -> list[Row]:
    """Return the rows of this suite."""
    (gigabytes,) = fresh("from benchmarks.models import long_capture; long_capture()")
    model = load("minilm")
    assert model.tokenizer is not None
    text = wikipedia()["Anarchism"].text
    ids = model.tokenizer(text, truncation=True, max_length=512)["input_ids"]
    captured = capture(model, ids)
    model.model.set_attn_implementation("eager")
    batch = torch.tensor([ids])

    def forward() -> None:
        with torch.no_grad():
            model.model(input_ids=batch)

    def exact() -> None:
        for head in captured:
            population_law(head.scores(), head.v, COUNTS)

    def monte_carlo() -> None:  # one head in six, scaled below: heads cost the same
        for place in list(captured)[::6]:
            measure_capture(
                captured, "mean", COUNTS, REPLICATES, layer=place.layer, head=place.head
            )

    passes = wall_seconds(forward, 5)
    delta = wall_seconds(lambda: delta_curves(captured, COUNTS), 5)
    every_n = wall_seconds(exact, 2)
    drawn = 6 * wall_seconds(monte_carlo)
    return [
        Row("delta curves, all heads, against one eager pass", delta, passes, 1 / 0.7),
        Row("exact curves, all heads, against one eager pass", every_n, passes, 1 / 12),
        Row("delta curves, against 500 replicates at 10 n", delta, drawn, 100),
        Row("SmolLM2 capture at 4096 tokens, against 6 GB", gigabytes, ALLOWED_GB, 1, "GB"),
    ]


def delta_curves(captured: Capture, n: list[int]) -> None:
    """Predict the mean of every head by the delta method."""
    for head in captured:
        predict_capture(captured, "mean", n, layer=head.layer, head=head.head, method="delta")


def long_capture() -> None:
    """Capture SmolLM2 on a 4096-token article, with every head's influence; print its peak GB."""
    model = load("smollm2")
    assert model.tokenizer is not None
    ids = model.tokenizer(wikipedia()["Anarchism"].text, verbose=False)["input_ids"][:LONG]
    delta_curves(capture(model, ids), [256])
    print(peak_megabytes() / 1e3)
