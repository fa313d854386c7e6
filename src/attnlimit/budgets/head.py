"""How many tokens does one captured head need, by each scheme, and which scheme is best?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.budgets.kinds import KIND, Kind, kind_of
from attnlimit.budgets.longer import longer_contexts
from attnlimit.budgets.schemes import SCHEMES, SchemeErrors, all_schemes, family, sized
from attnlimit.budgets.search import certified_tokens, fixed_tokens, typical_tokens
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.budgets.transfer import next_text
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.samplers import Sampler
from attnlimit.samplers.base import check_sampler
from attnlimit.threads import one_thread

QUERIES = 128
STATIC = ("sample", "local")
"""Schemes whose tokens do not depend on the query: the others can be dropped from memory."""


@dataclass(frozen=True)
class SchemeBudget:
    """Tokens that one scheme needs; None where not even the whole context is enough.

    `certified` rests on the exact law and Chebyshev's inequality, or on the error itself where
    nothing is drawn. `typical` is the delta method's (sample), or that of a normal error with the
    exact mean square (top-k + sample); `typical_reliable` is false where the weights are too
    concentrated for it.
    """

    scheme: str
    certified: int | None
    typical: int | None
    typical_reliable: bool
    median_error: float  # relative, over queries, at the certified budget


@dataclass(frozen=True)
class HeadBudget:
    """Budgets of one head. `best` names the scheme with the fewest certified tokens.

    `longer` maps a factor of the context to the tokens needed there if the head's law of scores
    and values stays the same: extrapolated, never measured; None where nothing can be said.

    `by_text` has the tokens that the best scheme needs on each text of the plan, and `held_out`
    the lowest share of a text's queries that keep the error on a budget planned without that text;
    None for a plan on one text, which knows no other.
    """

    layer: int
    head: int
    context: int
    terms: Terms
    schemes: dict[str, SchemeBudget]
    best: str
    kind: Kind
    longer: dict[int, dict[str, int | None]]
    full: bool  # whether every query sees every key
    by_text: tuple[int, ...]
    held_out: float | None
    samplers: Mapping[str, Sampler]  # of each scheme, of any size

    @property
    def varies(self) -> bool | None:
        """Whether a budget planned without one of the texts breaks its promise there."""
        return None if self.held_out is None else self.held_out < 1 - self.terms.delta

    @property
    def tokens(self) -> int:
        """Certified tokens of the best scheme; the whole context where none is enough."""
        return self.schemes[self.best].certified or self.context

    @property
    def stored(self) -> int:
        """Certified tokens that must stay in memory, by the best scheme that ignores the query."""
        fits = [self.schemes[name].certified or self.context for name in STATIC]
        return min(*fits, self.context)

    def sampler(self) -> Sampler:
        """Return the sampler that spends this budget."""
        return sized(self.samplers[self.best], self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """Return the head's entry in a budget file (docs/plan.md describes it)."""
        if set(self.schemes) != set(SCHEMES):
            raise BadInput(
                f"A budget file holds the schemes {', '.join(SCHEMES)}; plan without samplers of "
                "your own to write one."
            )
        return {
            "head": self.head,
            "scheme": self.best,
            "tokens": self.tokens,
            "stored": self.stored,
            "kind": self.kind.name,
            **{name: getattr(self.kind, name) for name in KIND},
            "sees_all": self.full,
            "by_text": list(self.by_text),
            "held_out": self.held_out,
            "varies": self.varies,
            "schemes": {
                name: {key: value for key, value in vars(scheme).items() if key != "scheme"}
                for name, scheme in self.schemes.items()
            },
            "extrapolated": {f"{factor}x": found for factor, found in self.longer.items()},
        }

    @classmethod
    def from_dict(cls, entry: dict[str, Any], layer: int, context: int, terms: Terms) -> HeadBudget:
        """Rebuild a head's budget from its entry in a budget file."""
        kind = Kind(entry["kind"], **{name: entry[name] for name in KIND})
        schemes = {name: SchemeBudget(name, **found) for name, found in entry["schemes"].items()}
        longer = {int(key[:-1]): found for key, found in entry["extrapolated"].items()}
        full, by_text, held_out = entry["sees_all"], tuple(entry["by_text"]), entry["held_out"]
        place = layer, entry["head"], context, terms
        best = entry["scheme"]
        return cls(*place, schemes, best, kind, longer, full, by_text, held_out, family(full))

    def to_frame(self) -> pd.DataFrame:
        """One row for each scheme."""
        frame = pd.DataFrame([vars(budget) for budget in self.schemes.values()])
        frame.insert(0, "layer", self.layer)
        frame.insert(1, "head", self.head)
        return frame.assign(best=frame.scheme == self.best)

    def __str__(self) -> str:
        lines = [
            f"layer {self.layer}, head {self.head}: {self.tokens} of {self.context} tokens by "
            f"{self.best} ({self.kind.name}); keep {self.kind.keep}"
        ]
        if self.held_out is not None:
            doubt = ": varies from text to text" if self.varies else ""
            needs = ", ".join(map(str, self.by_text))
            lines.append(
                f"  on the {len(self.by_text)} texts {needs}; planned without one of them it holds "
                f"there for {self.held_out:.0%} of queries or more{doubt}"
            )
        for name, budget in self.schemes.items():
            certified, typical = budget.certified or "too many", budget.typical or "too many"
            lines.append(f"  {name:<15s} certified {certified:>8}   typical {typical:>8}")
        return "\n".join(lines)


@one_thread()
def head_budget(
    head: CapturedHead | Sequence[CapturedHead],
    terms: Terms,
    *,
    queries: int = QUERIES,
    samplers: Mapping[str, Sampler] | None = None,
) -> HeadBudget:
    """Budget of a captured head by every scheme, from the laws at some of its queries.

    Given the same head on several texts, the budget is for the next text: see `transfer`.
    `samplers` are budgeted beside the schemes, by names of their own.
    """
    for name, sampler in (samplers or {}).items():
        check_sampler(sampler)
        if name in SCHEMES:
            raise BadInput(f"{name!r} is one of the schemes; give your sampler another name.")
    heads = [head] if isinstance(head, CapturedHead) else list(head)
    texts = [Queries.of(one, queries) for one in heads]
    return budget_from(texts, [all_schemes(seen, samplers) for seen in texts], terms)


def budget_from(
    texts: Sequence[Queries], schemes: Sequence[dict[str, SchemeErrors]], terms: Terms
) -> HeadBudget:
    """Budget of a head whose schemes' errors on each text are known."""
    context = max(len(queries.head) for queries in texts)
    # The most demanding text first: a law that costs something is then only checked on the others.
    hardest = sorted(schemes, key=lambda found: -certified_tokens([found["top-k"]], terms))
    needed, budgets = {}, {}
    for name in schemes[0]:
        errors = [found[name] for found in hardest]
        needed[name] = certified_tokens(errors, terms)
        certified = int(needed[name]) if needed[name] <= context else None
        typical, reliable = typical_tokens(texts, errors, terms, certified, context)
        median = 0.0
        if certified is not None:
            median = max(float(np.median(one.again(certified))) for one in errors)
        budgets[name] = SchemeBudget(name, certified, typical, reliable, median)
    best = min(needed, key=lambda name: needed[name])
    if needed[best] > context:
        best = "top-k"  # with every key kept, top-k is attention itself
    chosen = [found[best] for found in schemes]
    by_text = np.array([needed[best]])
    if len(texts) > 1:
        by_text = np.array([certified_tokens([one], terms) for one in chosen])
    decisive = texts[int(by_text.argmax())]
    return HeadBudget(
        layer=decisive.head.layer,
        head=decisive.head.head,
        context=context,
        terms=terms,
        schemes=budgets,
        best=best,
        kind=kind_of(decisive, best, budgets[best].certified or context),
        longer=longer_contexts(texts, needed, context, terms),
        full=decisive.head.mask.full,
        by_text=tuple(int(min(count, context)) for count in by_text),
        held_out=_held_out(chosen, by_text, terms),
        samplers={name: errors.sampler for name, errors in schemes[0].items()},
    )


def _held_out(texts: Sequence[SchemeErrors], needed: Array, terms: Terms) -> float | None:
    """Lowest share of a text's queries that are within the promise on the other texts' budget."""
    if len(texts) < 2:
        return None
    shares = []
    for place, errors in enumerate(texts):
        others = np.delete(needed, place)
        if errors.drawn:
            within = errors.again(int(others.max())) <= terms.certified
        else:
            within = fixed_tokens(errors, terms) <= next_text(others)
        shares.append(float(within.mean()))
    return min(shares)
