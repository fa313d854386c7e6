"""How long and how much memory will planning or measuring a model take? Counts times rates.

Counts are formulas that tests hold to what is really done; what one unit takes is timed here, on
one core, at small sizes (docs/scale.md has the formulas, and how well they do). N is the context,
d the dimension of a head, J the nodes of the exact law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from timeit import repeat

import pandas as pd
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnlimit import checks
from attnlimit.budgets.budget import budget
from attnlimit.budgets.terms import QUANTILE
from attnlimit.errors import BadInput
from attnlimit.models import Capture, LoadedModel, measure_capture, predict_capture
from attnlimit.models.capture.captured import CapturedLayer
from attnlimit.models.capture.masks import Mask
from attnlimit.survey.head import drawn_sizes
from attnlimit.threads import one_thread

NUMBER, DOUBLE = 4, 8  # bytes of a float32 and of a float64
NODES = 40
"""Nodes of the exact law, the mean over MiniLM's heads; their number hardly changes with n."""

BLOCK = 1 << 22  # scores that a blocked pass holds at a time
HOUR = 3600.0


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer.

    `parameters` are held in memory; `multiplied` of them take part in a matrix product for each
    token (tables of embeddings do not), all of them unless said otherwise.
    """

    layers: int
    heads: int  # query heads of a layer
    kv_heads: int
    head_dim: int
    parameters: float
    multiplied: float = 0.0
    causal: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_dim"):
            checks.count(getattr(self, name), name)
        if self.heads % self.kv_heads:
            raise BadInput(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly.")
        checks.positive(self.parameters, "parameters")
        if not self.multiplied:
            object.__setattr__(self, "multiplied", float(self.parameters))


NAMED = {
    "minilm": Shape(6, 12, 12, 32, 22_713_216, 10_764_288, causal=False),
    "smollm2": Shape(30, 9, 3, 64, 134_515_008, 106_168_320),
    "llama-8b": Shape(32, 32, 8, 128, 8.03e9, 6.98e9),
    "llama-70b": Shape(80, 64, 8, 128, 70.6e9, 68.5e9),
}
"""Shapes known by name: the two bundled models, and two sizes that people ask about."""


def shape_of(model: LoadedModel) -> Shape:
    """Shape of a loaded model."""
    base = model.model.base_model
    config = base.config
    heads = int(config.num_attention_heads)
    products = [part for part in base.modules() if isinstance(part, torch.nn.Linear)]
    return Shape(
        layers=int(config.num_hidden_layers),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        parameters=float(sum(part.numel() for part in base.parameters())),
        multiplied=float(sum(part.weight.numel() for part in products)),
        causal=bool(model.causal),
    )


@dataclass(frozen=True)
class Stage:
    """So many units of one kind of work, and the bytes of its largest arrays at once."""

    name: str
    unit: str
    count: float
    bytes: float
    jobs: tuple[str, ...] = ("measure",)


@dataclass(frozen=True)
class Job:
    """A model at a context, with the options of `attnlimit plan` and `measure`.

    `queries` of each head are budgeted, on `texts` passages of text; the exact curve and the draws
    of `measure` ask every token, on the first.
    """

    shape: Shape
    context: int
    queries: int = 128
    texts: int = 4
    replicates: int = 100
    number: int = 4  # bytes of a weight, and of a captured number: 2 in bfloat16

    def __post_init__(self) -> None:
        checks.count(self.context, "context", smallest=8)
        checks.count(self.queries, "queries")
        checks.count(self.texts, "texts")
        checks.count(self.replicates, "replicates", smallest=2)

    @property
    def layer(self) -> float:
        """Bytes of one layer of a text's capture."""
        heads = self.shape.heads + 2 * self.shape.kv_heads
        return float(self.number * heads * self.context * self.shape.head_dim)

    @property
    def stored(self) -> float:
        """Bytes of the capture on disk, all layers and texts."""
        return self.texts * self.shape.layers * self.layer

    @property
    def capturing(self) -> float:
        """Bytes held where the model runs, besides its activations: weights, and one layer."""
        return self.number * self.shape.parameters + self.layer

    @property
    def read(self) -> float:
        """Bytes of a head on every text, in single precision: what a worker reads at a time."""
        return 3.0 * NUMBER * self.texts * self.context * self.shape.head_dim

    @property
    def share_covered(self) -> float:
        """Share of all queries that a budget covers, expected: an order statistic's Beta law."""
        return self._rank / (self.asked + 1)

    @property
    def share_error(self) -> float:
        """Standard error of that share."""
        share = self.share_covered
        return math.sqrt(share * (1 - share) / (self.asked + 2))

    @property
    def _rank(self) -> int:
        return math.ceil(QUANTILE * (self.asked - 1)) + 1

    @property
    def asked(self) -> int:
        """Queries of each head that are budgeted: of a causal model in the later half."""
        return min(self.queries, self.context // 2 if self.shape.causal else self.context)

    def stages(self) -> tuple[Stage, ...]:
        """All stages, in their order."""
        shape, tokens, dim = self.shape, self.context, self.shape.head_dim
        heads, pairs = shape.layers * shape.heads, float(tokens) ** 2
        attended = tokens * (tokens + 1) / 2 if shape.causal else pairs  # by a fused kernel
        asked = self.asked
        sizes = drawn_sizes(tokens)
        # A causal head's queries draw among other keys each: all their scores are weighed anew.
        weighed = tokens * len(sizes) if shape.causal else sum(sizes)
        drawn = float(self.replicates * tokens * weighed)
        block = NUMBER * min(BLOCK, pairs)
        picks = 17 * pairs + 8 * DOUBLE * min(BLOCK, drawn) if shape.causal else 4 * block
        outputs = NUMBER * tokens * shape.multiplied / (shape.layers * shape.heads * dim)
        flops, scored = 2 * shape.multiplied * tokens, 4 * dim * heads * attended
        counted = float(self.texts * heads * asked * tokens)
        budgeted = DOUBLE * tokens * (asked * (5 * self.texts + 4) + 3 * dim)
        once, both = ("capture",), ("plan", "measure")
        return (
            Stage("forward pass, products", "flop", self.texts * flops, outputs, once),
            Stage("forward pass, attention", "attention flop", self.texts * scored, 0, once),
            Stage("budgets of heads", "budgeted pair", counted, budgeted, both),
            Stage("exact curve, every query", "node pair", heads * pairs * NODES, 8 * block),
            Stage("delta method, influence", "pair", heads * pairs, 4 * block),
            Stage("draws", "drawn key", heads * drawn, picks),
        )


def measure_rates(job: Job, tokens: int = 384) -> dict[str, float]:
    """Core-seconds of one unit of every stage, timed here on a head of the job's dimension."""
    dim, causal, texts = job.shape.head_dim, job.shape.causal, min(job.texts, 4)
    queries = min(job.queries, tokens // 2)
    small = Job(Shape(1, 1, 1, dim, 1, causal=causal), tokens, queries, texts, replicates=4)
    counts = {stage.unit: stage.count for stage in small.stages()}
    many = [made_capture(tokens, dim, causal=causal, seed=text) for text in range(texts)]
    made, sizes = many[0], drawn_sizes(tokens)
    rows, matrix = torch.randn(256, 2048), torch.randn(2048, 2048)
    long = torch.randn(1, 4, 1024, dim)
    counts |= {"flop": 2.0 * 256 * 2048**2, "attention flop": 4.0 * dim * 4 * 1024**2}
    work: dict[str, Callable[[], object]] = {
        "flop": lambda: rows @ matrix,
        "attention flop": lambda: scaled_dot_product_attention(long, long, long),
        "budgeted pair": lambda: budget(many, queries=queries),
        "node pair": lambda: predict_capture(made, "pointwise", sizes),
        "pair": lambda: [predict_capture(made, "mean", sizes, method="delta"), made.influence(0)],
        "drawn key": lambda: measure_capture(made, "pointwise", sizes, small.replicates),
    }
    with one_thread():
        # The faster of two runs: the first also loads what is needed once.
        runs = {unit: repeat(work[unit], timer=process_time, repeat=2, number=1) for unit in work}
    return {unit: max(min(seconds), 1e-9) / counts[unit] for unit, seconds in runs.items()}


def made_capture(tokens: int, dim: int, *, causal: bool, seed: int = 0) -> Capture:
    """A capture of one layer whose queries, keys and values are normal, for sizes no model has."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, tokens, dim, generator=generator) for _ in range(3))
    place = torch.arange(tokens)
    layer = CapturedLayer(2 * q, k, v, Mask(place, causal), dim**-0.5, softcap=None, bias=None)
    return Capture({0: layer}, ("",) * tokens, place, place < 0, depth=1, heads=1)


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of a capture, and of planning and measuring from it on so many workers.

    A worker has one core, and reads the heads that it is given; only the capture has the model.
    """

    job: Job
    rates: dict[str, float]
    workers: int = 1

    def seconds(self, stage: Stage) -> float:
        """Core-seconds of a stage, done once."""
        return self.rates[stage.unit] * stage.count

    def to_frame(self) -> pd.DataFrame:
        """One row for each stage."""
        return pd.DataFrame(
            [
                {
                    "stage": stage.name,
                    "in": ", ".join(stage.jobs),
                    "done": "once" if stage.jobs == ("capture",) else "head by head",
                    "units": stage.count,
                    "unit": stage.unit,
                    "core-seconds": self.seconds(stage),
                    "GB at once": stage.bytes / 1e9,
                }
                for stage in self.job.stages()
            ]
        )

    def totals(self) -> pd.DataFrame:
        """One row for `capture`, one for `plan` and one for `measure` from it."""
        job, rows = self.job, []
        for name in ("capture", "plan", "measure"):
            mine = [one for one in job.stages() if name in one.jobs]
            hours = sum(self.seconds(one) for one in mine) / HOUR
            whole = name == "capture"  # one machine runs the model
            held = job.capturing if whole else job.read
            rows.append(
                {
                    "job": name,
                    "core-hours": hours,
                    "workers": 1 if whole else self.workers,
                    "hours": hours if whole else hours / self.workers,
                    "GB a worker": (held + max(one.bytes for one in mine)) / 1e9,
                    "GB on disk": job.stored / 1e9 if whole else float("nan"),
                }
            )
        return pd.DataFrame(rows)
