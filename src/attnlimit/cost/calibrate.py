"""What are the rates of this machine? Timed at small sizes, and checked at larger ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.cost import timing
from attnlimit.cost.rates import Rates, Timing, fit_rates
from attnlimit.cost.shape import shape_of

Progress = Callable[[int, int], None]

# Heads to time, each with its queries and draws: one count must not follow another.
HEADS = ((0, 0, 32, 24), (2, 3, 128, 4), (5, 7, 384, 8))
MODELS = ("minilm", "smollm2")
SMALL = (128, 256, 384)
LARGE = (512, 1024, 2048)
STEPS, CHECK_STEPS = 17, 11


def rates_file() -> Path:
    """Where the rates of this machine are kept."""
    from attnlimit.models.load.load import cache_folder

    return cache_folder() / "cost.json"


def calibrate(progress: Progress | None = None) -> Rates:
    """Time every stage at small sizes on one thread, and fit the rates."""
    with timing.one_thread():
        found = list(_counted(_small(), STEPS, progress))
    return fit_rates([one for part in found for one in part], timing.machine())


def _counted(
    parts: Iterator[list[Timing]], total: int, progress: Progress | None
) -> Iterator[list[Timing]]:
    for done, part in enumerate(parts, 1):
        if progress is not None:
            progress(done, total)
        yield part


def _small() -> Iterator[list[Timing]]:
    from attnlimit.models import capture, load

    start = timing.time_start()
    yield [start, timing.time_libraries(start.seconds)]
    yield [timing.time_driver(ids) for ids in (0, 2_000, 50_000)]
    yield [timing.time_product(tokens, width) for tokens in (128, 512) for width in (2048, 4096)]
    yield [
        timing.time_attention(2, tokens, dim, causal=causal)
        for tokens in (1024, 2048, 4096)
        for dim in (64, 128)
        for causal in (False, True)
    ]
    yield [
        timing.time_sweep(sizes, draws, dim)
        for sizes, draws in (((250, 500, 1000), 20), ((500, 1000, 2000), 6), ((3000, 12_000), 2))
        for dim in (20, 50, 100)
    ]
    for name in MODELS:
        model = load(name)
        shape, ids = shape_of(model), timing.text_ids(model)
        yield [timing.time_load(name, shape)]
        yield [timing.time_forward(model, shape, ids[:tokens], 2) for tokens in (64, 128, 256)]
        for tokens in SMALL:
            captured, *others = (
                capture(model, ids[part * tokens : (part + 1) * tokens]) for part in range(3)
            )
            found = [timing.time_horizons(captured)]
            for layer, head, queries, draws in HEADS:
                found += timing.time_head(
                    captured,
                    layer,
                    head,
                    queries=queries,
                    replicates=draws,
                    others=others[: layer // 2],
                )
            yield found
    yield [timing.time_horizons(timing.made_capture(1024, 64, causal=True, heads=16))]
    # No bundled model has heads of 128 numbers.
    yield [
        one
        for tokens in (256, 768)
        for causal in (False, True)
        for made in [timing.made_capture(tokens, 128, causal=causal, heads=8)]
        for one in [
            timing.time_horizons(made),
            *timing.time_head(made, 0, 0, queries=128, replicates=4),
        ]
    ]


def check(rates: Rates, progress: Progress | None = None) -> pd.DataFrame:
    """Time sizes that the fit has not seen; one row for each, predicted beside measured."""
    with timing.one_thread():
        found = list(_counted(_large(), CHECK_STEPS, progress))
    return pd.DataFrame(
        [
            {"what": what, **compared}
            for what, part in zip(_LARGE_NAMES, found, strict=True)
            for compared in compare(rates, part)
        ]
    )


def compare(rates: Rates, timings: list[Timing]) -> list[dict[str, Any]]:
    """Predicted and measured seconds, those of one stage together."""
    rows = []
    for stage in dict.fromkeys(one.stage for one in timings):
        here = [one for one in timings if one.stage == stage]
        measured = sum(one.seconds for one in here)
        predicted = sum(rates.of(stage, one.work) for one in here)
        rows.append(
            {
                "stage": stage,
                "pairs": sum(one.work.pairs for one in here),
                "predicted s": predicted,
                "measured s": measured,
                "ratio": predicted / measured,
            }
        )
    return rows


_LARGE_NAMES = (
    *(f"smollm2, {tokens} tokens" for tokens in LARGE),
    "minilm, 512 tokens, four texts",
    *(f"attention alone, {tokens} tokens, d = 128" for tokens in (8192, 16384)),
    *(f"Gaussian sweep to n = {n}, d = 50" for n in (16_000, 24_000, 32_000)),
    "made head, 1024 tokens, d = 128",
    "made head, 2048 tokens, d = 128",
)


def _large() -> Iterator[list[Timing]]:
    from attnlimit.models import capture, load

    model = load("smollm2")
    shape, ids = shape_of(model), timing.text_ids(model)
    for tokens in LARGE:
        captured = capture(model, ids[:tokens])
        found = [timing.time_forward(model, shape, ids[:tokens], 2), timing.time_horizons(captured)]
        for layer, head in ((9, 4), (20, 1)):
            found += timing.time_head(captured, layer, head, queries=128, replicates=4, blind=True)
        yield found
    model = load("minilm")
    shape, ids = shape_of(model), timing.text_ids(model)
    captured, *others = (capture(model, ids[512 * part : 512 * (part + 1)]) for part in range(4))
    found = [timing.time_forward(model, shape, ids[:512], 2), timing.time_horizons(captured)]
    for layer, head in ((1, 5), (3, 10), (4, 2)):
        found += timing.time_head(
            captured, layer, head, queries=128, replicates=20, others=others, blind=True
        )
    yield found
    for tokens in (8192, 16384):
        yield [timing.time_attention(1, tokens, 128, causal=True)]
    for largest in (16_000, 24_000, 32_000):
        sizes = [int(n) for n in np.geomspace(500, largest, 6)]
        yield [timing.time_sweep(sizes, 3, 50)]
    for tokens in (1024, 2048):
        made = timing.made_capture(tokens, 128, causal=True, heads=8, seed=1)
        yield [timing.time_horizons(made), *timing.time_head(made, 0, 3, queries=128, replicates=4)]
