"""Which stages does planning or measuring a model have, and who repeats them?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from attnlimit import checks
from attnlimit.cost import counts
from attnlimit.cost.counts import Work
from attnlimit.cost.shape import Shape

QUERIES, TEXTS, REPLICATES = 128, 4, 100
"""What `attnlimit measure` takes when nothing is said."""

FEWEST_TOKENS = 8


@dataclass(frozen=True)
class Stage:
    """Work of one kind, in all, and how it is shared.

    A stage `by` "worker" is repeated whole by every worker; one by "head" is divided among them,
    head by head.
    """

    title: str
    parts: tuple[tuple[str, Work], ...]  # by the stage whose rates they take
    by: Literal["worker", "head"]
    planned: bool  # whether `plan` has it; `measure` has all

    @property
    def pairs(self) -> float:
        """Query-key pairs looked at."""
        return sum(work.pairs for _, work in self.parts)

    @property
    def bytes(self) -> float:
        """Largest arrays at once, in one process."""
        return max(work.bytes for _, work in self.parts)


@dataclass(frozen=True)
class Job:
    """A model at a context, with the options of `attnlimit plan` and `measure`.

    `queries` of each head are budgeted, on `texts` stretches of text; the exact curve and the
    referee of `measure` ask every token, on the first.

    Today every worker loads the model, captures every text, and does whole heads. `shared` is what
    if not: captures made once by all workers together, layer by layer, each worker holding one
    layer or one head at a time, and heads cut into shards of any size.
    """

    shape: Shape
    context: int
    queries: int = QUERIES
    texts: int = TEXTS
    replicates: int = REPLICATES
    shared: bool = False

    def __post_init__(self) -> None:
        checks.count(self.context, "--context", smallest=FEWEST_TOKENS)
        checks.count(self.queries, "--queries")
        checks.count(self.texts, "--parts")
        checks.count(self.replicates, "--replicates", smallest=2)

    @property
    def resident(self) -> float:
        """Bytes that every worker holds all the time: the weights, and all captures."""
        shape = self.shape
        captured = counts.capture_bytes(shape, self.context, self.texts)
        if self.shared:
            return max(counts.weight_bytes(shape) / shape.layers, 3 * captured / shape.kv_rows)
        return counts.weight_bytes(shape) + captured

    def stages(self) -> tuple[Stage, ...]:
        """All stages, in their order."""
        shape, tokens, dim = self.shape, self.context, self.shape.head_dim
        causal = shape.causal
        asked = min(self.queries, tokens - tokens // 2 if causal else tokens)
        law = counts.law(tokens, tokens, dim, tokens)
        drawn = counts.referee(tokens, dim, self.replicates, causal=causal)
        once: Literal["worker", "head"] = "head" if self.shared else "worker"
        laws = ["law in double"]
        if counts.single_is_enough(tokens):
            # A causal head's first queries see few keys: single precision is tried, in vain.
            laws = ["law", *laws] if causal else ["law"]
        return (
            Stage("start", (("start", Work(0, {"calls": 1.0})),), "worker", True),
            Stage("load", (("load", counts.load(shape)),), once, True),
            Stage(
                "forward pass, captured",
                (("forward", counts.forward(shape, tokens).times(self.texts)),),
                once,
                True,
            ),
            self._by_head(
                "budgets: law of sampling",
                {"law in double": counts.budget_law(asked, tokens, dim).times(self.texts)},
                planned=True,
            ),
            self._by_head(
                "budgets: other schemes",
                {"schemes": counts.schemes(asked, tokens, dim, self.texts)},
                planned=True,
            ),
            self._by_head(
                "curves of the schemes",
                {"schemes": counts.scheme_curves(asked, tokens, dim, self.texts)},
            ),
            self._by_head("exact curve, every query", dict.fromkeys(laws, law)),
            self._by_head("delta pass, influence", {"delta pass": counts.delta(tokens, dim)}),
            self._by_head("horizons", {"horizons": self._horizons()}),
            self._by_head("the referee's draws", {"draws, causal" if causal else "draws": drawn}),
        )

    def _by_head(self, title: str, works: dict[str, Work], *, planned: bool = False) -> Stage:
        heads = self.shape.all_heads
        whole = tuple((name, work.times(heads)) for name, work in works.items())
        return Stage(title, whole, "head", planned)

    def _horizons(self) -> Work:
        """Every shard computes the horizons of all heads, and keeps its own."""
        if self.shared:
            return counts.horizon(replace(self.shape, layers=1, heads=1, kv_heads=1), self.context)
        return counts.horizon(self.shape, self.context)

    def driver(self) -> Work:
        """What the driver does for one shard, which today carries the texts' token numbers."""
        return counts.shard(0 if self.shared else self.texts * self.context)
