"""What share of the keys does each head of a plan keep, and each key-value head of its cache?

Query heads that share keys keep the union of what each keeps. A plan for a model's output counted
it when it was made. Another plan knows how many keys each head keeps, not which, so the union is
the expected one if heads choose independently,

    1 - (1 - a) prod_h (1 - s_h),

with s_h the shares of heads whose keys may be any, and a the largest share of those that keep the
first and the most recent keys: of these, each holds the smaller. It is at least the largest of the
shares and at most their sum; heads that like the same keys need less.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnlimit import checks
from attnlimit.budgets.model import SCHEMA, Plan, read_plan
from attnlimit.budgets.terms import Terms
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import read_json
from attnlimit.models.output.planned import OutputPlan
from attnlimit.samplers import Sampler


@dataclass(frozen=True, eq=False)
class Needs:
    """A plan as other tools can take it: numbers by layer and head."""

    model: str
    context: int  # tokens of the longest text of the plan
    kept: Array  # (L, H) share of the keys that a query sees
    by_text: Array  # (L, H, T) the same for each text that the plan tells apart
    samplers: tuple[tuple[Sampler | None, ...], ...]  # by layer and head; None keeps all keys
    local: Array | None  # (L, H) first and recent tokens that are enough, inf if none; or not known
    terms: Terms | None  # of a plan for every head's own error
    groups: int | None  # key-value heads in a layer, if that is known
    together: Array | None  # (L, G) share of the keys that some head of a group reads, if counted
    causal: bool  # whether queries come one after another, so that there is a cache

    @property
    def nested(self) -> NDArray[np.bool_]:
        """Heads (L, H) that keep the first keys and the most recent ones."""
        return np.array([[s is not None and s.forgets for s in row] for row in self.samplers])

    def key_value_heads(self) -> int:
        """Key-value heads in a layer; a plan without a cache, or that does not say, is refused."""
        if not self.causal:
            raise BadInput(
                "The plan's model reads all its tokens at once and has no key-value cache to make "
                "smaller; scores and hub can be exported."
            )
        if self.groups is None:
            raise BadInput(
                "This plan does not say how many key-value heads a layer of its model has; give "
                "--kv-heads (num_key_value_heads in the model's config.json)."
            )
        return self.groups

    def shares(self) -> Array:
        """Share of the cache that each key-value head keeps, (L, G): the union, or an estimate."""
        groups = self.key_value_heads()
        if self.together is not None:
            return self.together
        apart = (len(self.kept), groups, -1)
        kept, nested = self.kept.reshape(apart), self.nested.reshape(apart)
        together = np.where(nested, kept, 0.0).max(-1)
        missed = np.where(nested, 1.0, 1.0 - kept).prod(-1)
        return np.asarray(1.0 - (1.0 - together) * missed)

    def dropping(self) -> str:
        """What is lost where keys are dropped for good, in one sentence."""
        if self.nested.all():
            return "Which keys stay is the other tool's choice, not the plan's."
        return (
            "The plan chooses keys anew for every query; a cache that drops keys for good keeps as "
            "many, chosen once and by the other tool, so what the plan promises is not promised."
        )


def read_needs(path: str | Path, kv_heads: int | None = None) -> Needs:
    """Read a plan for a model's output or a budget file, whichever it is."""
    content = read_json(Path(path))
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema == SCHEMA:
        return needs_of(read_plan(path), kv_heads)
    if isinstance(schema, str) and schema.startswith("attnlimit.output-plan/"):
        return needs_of(OutputPlan.read(path), kv_heads)
    raise BadInput(f"{path} is not a plan; make one: attnlimit plan --budget plan.json.")


def needs_of(plan: OutputPlan | Plan, kv_heads: int | None = None) -> Needs:
    """What the heads of a plan keep; `kv_heads` is asked for where the plan does not say it."""
    given = None if kv_heads is None else checks.count(kv_heads, "kv_heads")
    found = _of_output(plan, given) if isinstance(plan, OutputPlan) else _of_budgets(plan, given)
    heads = found.kept.shape[1]
    if found.groups is not None and heads % found.groups:
        raise BadInput(
            f"{heads} query heads cannot share {found.groups} key-value heads evenly; give the "
            "num_key_value_heads of the plan's own model."
        )
    return found


def _same(given: int | None, known: int) -> int:
    if given is not None and given != known:
        raise BadInput(f"The plan's model has {known} key-value heads, not {given}.")
    return known


def _of_output(plan: OutputPlan, groups: int | None) -> Needs:
    together = None if plan.kv_keys is None else np.clip(plan.kv_keys / plan.mean_visible, 0.0, 1.0)
    if together is not None:
        groups = _same(groups, together.shape[1])
    kept = np.clip(plan.keys / plan.mean_visible, 0.0, 1.0)
    kept[[[sampler is None for sampler in row] for row in plan.heads]] = 1.0
    return Needs(
        model=plan.model,
        context=max(plan.tokens),
        kept=kept,
        by_text=kept[..., None],
        samplers=plan.heads,
        local=None,
        terms=None,
        groups=groups,
        together=together,
        causal=plan.measure == "kl",
    )


def _of_budgets(plan: Plan, groups: int | None) -> Needs:
    heads = sorted(plan.heads, key=lambda one: (one.layer, one.head))
    layers, width = heads[-1].layer + 1, heads[-1].head + 1
    depth = plan.source.get("layers", layers)
    whole = [(layer, head) for layer in range(layers) for head in range(width)]
    if [(one.layer, one.head) for one in heads] != whole or depth != layers:
        raise BadInput(
            "The plan does not have all layers and heads of its model, and other tools need them "
            "all; plan again without --layer."
        )
    shape = (layers, width)
    samplers = [
        None if one.tokens >= plan.context and one.best == "top-k" else one.sampler()
        for one in heads
    ]
    local = [one.schemes["local"].certified or np.inf for one in heads]
    return Needs(
        model=str(plan.source.get("model", "")),
        context=plan.context,
        kept=np.array([one.tokens for one in heads]).reshape(shape) / plan.context,
        by_text=np.array([one.by_text for one in heads]).reshape(*shape, -1) / plan.context,
        samplers=tuple(tuple(samplers[row * width : (row + 1) * width]) for row in range(layers)),
        local=np.array(local, dtype=float).reshape(shape),
        terms=plan.terms,
        groups=_same(groups, plan.groups),
        together=None,
        causal=not any(one.full for one in heads),
    )
