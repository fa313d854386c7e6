"""What does each stage take at one size? The project's own functions, timed on one thread.

Seconds are those of the processor, so that other programs on the machine hardly change them.
"""

from __future__ import annotations

import math
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.cost import counts
from attnlimit.cost.rates import Timing
from attnlimit.cost.shape import Shape
from attnlimit.runs.task import Outcome, Task
from attnlimit.tables import to_parquet

if TYPE_CHECKING:
    from attnlimit.models import Capture

TEXT = "Anarchism"
SCORE_STD = 2.0
EMPTY_SHARDS = 100
NEGLIGIBLE = 30.0
"""Where the exact law stops: every w^2 e^-w is negligible beyond."""

WORKER = "import attnlimit.runs.processes"


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch and the linear algebra on one core, as a shard is."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def core_seconds(action: Callable[[], object], repeats: int = 1) -> float:
    """Processor seconds of the fastest of several runs."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        found.append(time.process_time() - start)
    return max(min(found), 1e-6)


def machine() -> dict[str, str]:
    """What the rates belong to."""
    return {
        "processor": _processor(),
        "system": platform.platform(terse=True),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def made_capture(tokens: int, dim: int, *, causal: bool, heads: int = 1, seed: int = 0) -> Capture:
    """A capture of one layer whose queries, keys and values are normal, for sizes no model has."""
    from attnlimit.models.capture.captured import Capture, CapturedLayer
    from attnlimit.models.capture.masks import Mask

    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(heads, tokens, dim, generator=generator) for _ in range(3))
    place = torch.arange(tokens)
    rule = (lambda queries, keys: keys <= queries) if causal else None
    layer = CapturedLayer(
        SCORE_STD * q, k, v, Mask(place, rule, causal), dim**-0.5, softcap=None, bias=None
    )
    return Capture({0: layer}, ("",) * tokens, place, place < 0, depth=1, heads=heads)


def text_ids(model: Any) -> list[int]:
    """Token numbers of a long article."""
    from attnlimit.models import wikipedia

    return [int(one) for one in model.tokenizer(wikipedia()[TEXT].text, verbose=False)["input_ids"]]


def time_forward(model: Any, shape: Shape, ids: Sequence[int], repeats: int) -> Timing:
    """One pass of a model over a text, captured."""
    from attnlimit.models import capture

    seconds = core_seconds(lambda: capture(model, list(ids)), repeats)
    return Timing("forward", counts.forward(shape, len(ids)), seconds)


def time_product(tokens: int, width: int) -> Timing:
    """A product with a matrix of large models, alone: bundled ones are too small to tell."""
    rows, matrix = torch.randn(tokens, width), torch.randn(width, width)
    seconds = core_seconds(lambda: rows @ matrix.T, 3)
    return Timing("forward", counts.Work(0, {"flops": 2.0 * tokens * width**2}), seconds)


def time_attention(heads: int, tokens: int, dim: int, *, causal: bool) -> Timing:
    """The fused attention that a pass uses, alone: at small sizes it hides behind the products."""
    q, k, v = (torch.randn(1, heads, tokens, dim) for _ in range(3))
    seconds = core_seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal), 3)
    pairs = counts.attended_pairs(heads, tokens, causal)
    return Timing(
        "forward", counts.Work(pairs, {"pairs": pairs, "pair numbers": pairs * dim}), seconds
    )


def time_head(
    capture: Capture,
    layer: int,
    head: int,
    *,
    queries: int,
    replicates: int,
    others: Sequence[Capture] = (),
    blind: bool = False,
) -> list[Timing]:
    """Every stage of one head, budgeted on other texts too; `blind` does not look at its scores."""
    from attnlimit.budgets.head import head_budget
    from attnlimit.budgets.terms import Terms
    from attnlimit.models.heads.curves import measure_capture, predict_capture
    from attnlimit.theory.law.population import population_law

    found = capture[layer, head]
    texts = [found, *(other[layer, head] for other in others)]
    tokens, dim = found.q.shape
    place: dict[str, Any] = {"layer": layer, "head": head}
    sizes = counts.referee_sizes(tokens)
    rows = torch.linspace(tokens // 2, tokens - 1, min(queries, tokens // 2)).long()
    scores, values = found.scores(rows), found.v
    passes = lambda: (  # noqa: E731
        predict_capture(capture, "pointwise", sizes, method="delta", **place),
        capture.influence(layer, head),
    )
    depth = counts.SCORE_DEPTH if blind else _depth(scores)
    grid = [2, *sizes]
    work = counts.law(len(rows), tokens, dim, tokens, depth)
    causal = not found.mask.full
    timings = [
        Timing("delta pass", counts.delta(tokens, dim), core_seconds(passes, 3)),
        Timing(
            "law in double",
            work,
            core_seconds(lambda: population_law(scores.double(), values.double(), grid), 2),
        ),
    ]
    if not causal:  # single precision is not enough where a query sees few keys
        timings.append(
            Timing("law", work, core_seconds(lambda: population_law(scores, values, grid), 2))
        )
    if replicates:
        draw = lambda: measure_capture(capture, "pointwise", sizes, replicates, **place)  # noqa: E731
        timings.append(
            Timing(
                "draws, causal" if causal else "draws",
                counts.referee(tokens, dim, replicates, causal=causal),
                core_seconds(draw),
            )
        )
    asked = min(queries, tokens - tokens // 2) if causal else min(queries, tokens)
    seconds = core_seconds(lambda: head_budget(texts, Terms(), queries=queries))
    # The exact law inside is known by now: what is left is that of the other schemes.
    inside = counts.budget_law(asked, tokens, dim, depth).units["node pairs"]
    seconds -= len(texts) * timings[1].seconds * inside / work.units["node pairs"]
    left = counts.schemes(asked, tokens, dim, len(texts))
    timings.append(Timing("schemes", left, max(seconds, 1e-6)))
    return timings


def _depth(scores: torch.Tensor) -> float:
    """How far the exact law has to follow these scores, below their log-mean-exp."""
    visible = torch.isfinite(scores)
    level = torch.logsumexp(scores, 1) - torch.log(visible.sum(1))
    lowest = (scores - level[:, None]).masked_fill(~visible, torch.inf).min()
    return math.log(NEGLIGIBLE) - float(lowest)


def time_horizons(capture: Capture) -> Timing:
    """Horizons of all heads of a capture."""
    layer = next(iter(capture.layers.values()))
    heads, tokens, dim = layer.q.shape
    shape = Shape(len(capture.layers), heads, len(layer.k), dim, parameters=1)
    return Timing("horizons", counts.horizon(shape, tokens), core_seconds(capture.horizons, 2))


def time_sweep(sizes: Sequence[int], draws: int, dim: int, repeats: int = 1) -> Timing:
    """The Gaussian sweep of `attnlimit reproduce`, with its four statistics."""
    from attnlimit.montecarlo.sweep import sweep
    from attnlimit.reproduce.temperatures import STATISTICS, paper_head
    from attnlimit.tokens import Gaussian

    head, tokens = paper_head(dim, 4.0), Gaussian(dim=dim, variance=0.1)
    n = np.asarray(sizes, dtype=np.int64)
    seconds = core_seconds(
        lambda: sweep(head, tokens, STATISTICS, n, draws, np.random.SeedSequence(0)), repeats
    )
    return Timing("sweep", counts.sweep(sizes, draws, dim), seconds)


def time_start() -> Timing:
    """A fresh worker, until it could take its first shard."""
    return Timing("start", counts.Work(0, {"calls": 1.0}), _fresh_seconds(WORKER))


def time_libraries(start: float) -> Timing:
    """What a worker imports for its first model, beyond its `start`."""
    code = f"{WORKER}, attnlimit.reproduce.model, transformers.models.llama.modeling_llama"
    seconds = max(_fresh_seconds(code) - start, 1e-6)
    return Timing("load", counts.Work(0, {"calls": 1.0}), seconds)


def time_load(name: str, shape: Shape) -> Timing:
    """Load a model whose libraries are there."""
    from attnlimit.models import load

    work = counts.Work(0, {"bytes": counts.weight_bytes(shape)})
    return Timing("load", work, core_seconds(lambda: load(name)))


def _fresh_seconds(code: str) -> float:
    """Processor seconds of a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class _NoWork:
    """An executor whose shards are done at once: what is left is the driver."""

    slots = 2
    description = "nowhere"

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.tasks: list[Task] = []

    def __enter__(self) -> _NoWork:
        return self

    def __exit__(self, *exception: object) -> None:
        self.tasks.clear()

    def submit(self, task: Task) -> None:
        task.to_bytes()
        self.tasks.append(task)

    def wait(self) -> Outcome:
        return Outcome(self.tasks.pop(0), self.content)


def time_driver(ids: int) -> Timing:
    """A run of shards with nothing to do, each with so many token numbers to hand over.

    By the clock on the wall, unlike the others, and the best of a few: the driver waits for the
    disk.
    """
    from attnlimit.reproduce import Experiment
    from attnlimit.runs import execute

    numbers = np.random.default_rng(0).integers(1000, 30_000, ids).tolist()
    shards = EMPTY_SHARDS if not ids else max(3, EMPTY_SHARDS // 20)
    empty: Any = Experiment(
        name="empty",
        title="Shards with nothing to do",
        config=lambda paper: {"seed": 0},
        shards=lambda config: ({"ids": numbers} for _ in range(shards)),
        compute=lambda shard, seed: pd.DataFrame(),
        combine=lambda config, rows: rows,
        figure=None,
        table=None,
    )
    content = to_parquet(pd.DataFrame({"number": [0.0]}))
    found = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as place:
            start = time.perf_counter()
            execute(empty, {"seed": 0}, Path(place), executor=_NoWork(content))
            found.append((time.perf_counter() - start) / shards)
    return Timing("driver", counts.shard(ids), min(found))
