"""How many tokens does every head of a model need, and how much memory does that save?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.budgets.checked import check_content
from attnlimit.budgets.head import QUERIES, HeadBudget, head_budget
from attnlimit.budgets.terms import Terms
from attnlimit.errors import BadInput
from attnlimit.files import read_json, write_atomically
from attnlimit.models.captures import Capture
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.samplers import Sampler

SCHEMA = "attnlimit.budget/1"
NUMBER_BYTES = 2
"""Bytes of one number of a key-value cache in half precision."""


@dataclass(frozen=True)
class Memory:
    """Key-value bytes over all layers: the full cache, read by a query, and stored."""

    full: int
    read: int  # by the best scheme of each head; top-k still needs the whole cache stored
    stored: int  # by the best scheme that does not look at the query

    def __str__(self) -> str:
        return (
            f"key-value cache {self.full / 1e6:.3g} MB; a query reads {self.read / self.full:.0%} "
            f"of it; if keys were deleted instead of skipped, {self.stored / self.full:.0%} of it "
            "would have to stay"
        )


@dataclass(frozen=True)
class Plan(Result, Pictured):
    """Budgets of all heads of a model, planned on one text or on several."""

    heads: tuple[HeadBudget, ...]
    terms: Terms
    context: int
    groups: int  # key-value heads in a layer
    width: int  # numbers in a key and its value together
    source: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, place: tuple[int, int]) -> HeadBudget:
        for budget in self.heads:
            if (budget.layer, budget.head) == place:
                return budget
        raise BadInput(f"The plan has no layer {place[0]}, head {place[1]}.")

    @property
    def tokens(self) -> int:
        """Tokens that are enough for every head by its own best scheme."""
        return max(budget.tokens for budget in self.heads)

    def layers(self) -> pd.DataFrame:
        """One row for each layer: median, largest and mean budget, and the heads not thinned."""
        grouped = self.to_frame().groupby("layer")
        return pd.DataFrame(
            {
                "median": grouped.tokens.median(),
                "largest": grouped.tokens.max(),
                "stored": grouped.stored.median(),
                "not thinnable": grouped.thinnable.apply(lambda part: int((~part).sum())),
                "best scheme": grouped.best.agg(lambda part: part.mode().iloc[0]),
            }
        ).reset_index()

    def memory(self, number_bytes: int = NUMBER_BYTES) -> Memory:
        """Key-value memory; query heads that share keys need the largest of their budgets."""
        frame = self.to_frame()
        count = int(frame["head"].max()) + 1
        frame["group"] = frame["head"] * self.groups // count
        needed = frame.groupby(["layer", "group"])[["tokens", "stored"]].max()
        unit = self.width * number_bytes
        return Memory(
            full=len(needed) * self.context * unit,
            read=int(needed.tokens.sum()) * unit,
            stored=int(needed.stored.sum()) * unit,
        )

    def samplers(self) -> dict[tuple[int, int], Sampler]:
        """Sampler of every head."""
        return {(budget.layer, budget.head): budget.sampler() for budget in self.heads}

    def to_frame(self) -> pd.DataFrame:
        """One row for each head: best scheme, tokens, kind, and every scheme's certified tokens."""
        rows = [
            {
                "layer": budget.layer,
                "head": budget.head,
                "kind": budget.kind.name,
                "best": budget.best,
                "tokens": budget.tokens,
                "typical": budget.schemes[budget.best].typical,
                "stored": budget.stored,
                "thinnable": budget.kind.thinnable,
                "least": min(budget.by_text),
                "most": max(budget.by_text),
                "held out": budget.held_out,
                **{name: scheme.certified for name, scheme in budget.schemes.items()},
            }
            for budget in self.heads
        ]
        return pd.DataFrame(rows)

    def panel(self) -> Panel:
        """Tokens that are enough for each head, from the least demanding to the most."""
        tokens = np.sort([budget.tokens for budget in self.heads])
        series = [
            Series(np.arange(1, len(tokens) + 1), tokens, "line", "best scheme of a head", "heads"),
            Series([1, len(tokens)], [self.context] * 2, "dashed", "all tokens", "context"),
        ]
        title = f"{self.terms.epsilon:.0%} error: tokens that are enough"
        return Panel(title, "heads, in order", "certified tokens", series, "linear", "linear")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a budget file (docs/plan.md describes it)."""
        by_layer: dict[int, list[dict[str, Any]]] = {}
        for budget in self.heads:
            by_layer.setdefault(budget.layer, []).append(budget.to_dict())
        return {
            "schema": SCHEMA,
            "source": self.source,
            **vars(self.terms),
            "context": self.context,
            "key_value_heads": self.groups,
            "key_value_width": self.width,
            "memory": vars(self.memory()),
            "layers": [
                {"layer": layer, "tokens": max(h["tokens"] for h in heads), "heads": heads}
                for layer, heads in by_layer.items()
            ],
        }

    def write(self, path: str | Path) -> Path:
        """Write the budget file."""
        target = Path(path)
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        write_atomically(target, text.encode())
        return target

    def __str__(self) -> str:
        frame = self.to_frame()
        terms = self.terms
        best = ", ".join(f"{name} {count}" for name, count in frame.best.value_counts().items())
        lines = [
            f"each head by itself: a relative error of at most {terms.epsilon:g} for "
            f"{terms.quantile:.0%} of its queries, with probability {1 - terms.delta:g} where keys "
            f"are drawn and for sure where they are not; context {self.context}",
            f"  tokens by the best scheme: median {frame.tokens.median():.0f}, "
            f"from {frame.tokens.min()} to {frame.tokens.max()}",
            f"  best scheme: {best}",
            f"  half of the tokens are not enough for {(~frame.thinnable).sum()} of "
            f"{len(frame)} heads",
            f"  {self.memory()}",
            f"  {self.transfer()}",
        ]
        return "\n".join(lines)

    @property
    def texts(self) -> int:
        """How many texts the plan was made on."""
        return len(self.heads[0].by_text)

    def transfer(self) -> str:
        """Say what the plan knows of texts that are not in it."""
        if self.texts == 1:
            return "planned on one passage of text: how much other texts need is not known"
        doubtful = sum(bool(budget.varies) for budget in self.heads)
        return (
            f"planned on {self.texts} passages of text, with a margin for the next: {doubtful} of "
            f"{len(self.heads)} heads vary so much that a plan without one of them fails there"
        )


def read_plan(path: str | Path) -> Plan:
    """Read a budget file."""
    content = read_json(Path(path))
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise BadInput(f"{path} is not a budget file of schema {SCHEMA}.")
    try:
        check_content(content)
    except BadInput as error:
        raise BadInput(f"{path} is not a budget file: {error}.") from None
    return plan_from(content)


def plan_from(content: dict[str, Any]) -> Plan:
    """Rebuild a plan from the content of its budget file."""
    terms = Terms(content["epsilon"], content["delta"], content["quantile"])
    context = content["context"]
    heads = tuple(
        HeadBudget.from_dict(entry, layer["layer"], context, terms)
        for layer in content["layers"]
        for entry in layer["heads"]
    )
    groups, width = content["key_value_heads"], content["key_value_width"]
    return Plan(heads, terms, context, groups, width, content["source"])


def plan_budgets(
    captures: Capture | Sequence[Capture],
    terms: Terms,
    *,
    queries: int = QUERIES,
    samplers: Mapping[str, Sampler] | None = None,
    layers: Sequence[int] | None = None,
    source: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Budget every head of a model (or of some of its layers) from its captures on some texts."""
    texts = [captures] if isinstance(captures, Capture) else list(captures)
    if not texts:
        raise BadInput("A plan needs at least one captured text.")
    shapes = {(tuple(text.layers), text.heads, *shape_of(text).values()) for text in texts}
    if len(shapes) > 1:
        raise BadInput("A plan is for one model: these captures differ in layers, heads or width.")
    first = texts[0]
    wanted = None if layers is None else {first.check_layer(layer) for layer in layers}
    chosen = [head for head in first if wanted is None or head.layer in wanted]
    found = []
    for done, head in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        same = [capture[head.layer, head.head] for capture in texts]
        found.append(head_budget(same, terms, queries=queries, samplers=samplers))
    context = max(len(capture) for capture in texts)
    if not source:
        plain = {k: v for k, v in first.source.items() if isinstance(v, (str, int, float, bool))}
        source = plain | {"layers": first.depth, "heads": first.heads, "tokens": len(first)}
    return Plan(tuple(found), terms, context, **shape_of(first), source=source)


def shape_of(capture: Capture) -> dict[str, int]:
    """Key-value heads in a layer, and the numbers in a key and its value."""
    first = next(iter(capture.layers.values()))
    return {"groups": len(first.k), "width": int(first.k.shape[-1] + first.v.shape[-1])}
