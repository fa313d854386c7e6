"""How many tokens does one captured head need, by each scheme, and which scheme is best?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlimit.budgets.kinds import Kind, kind_of
from attnlimit.budgets.schemes import Queries, SchemeErrors, all_schemes, sampler_for
from attnlimit.budgets.terms import Terms, first_enough
from attnlimit.models.captured import CapturedHead
from attnlimit.models.delta import MAX_PARTICIPATION

FACTORS = (10, 100)
QUERIES = 128
SCHEMES = ("sample", "top-k", "local", "top-k + sample")
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
    and values stays the same: extrapolated, never measured.
    """

    layer: int
    head: int
    context: int
    terms: Terms
    schemes: dict[str, SchemeBudget]
    best: str
    kind: Kind
    longer: dict[int, dict[str, int]]
    full: bool  # whether every query sees every key

    @property
    def tokens(self) -> int:
        """Certified tokens of the best scheme; the whole context where none is enough."""
        return self.schemes[self.best].certified or self.context

    @property
    def stored(self) -> int:
        """Certified tokens that must stay in memory, by the best scheme that ignores the query."""
        fits = [self.schemes[name].certified or self.context for name in STATIC]
        return min(*fits, self.context)

    def sampler(self) -> tuple[Any, int | None]:
        """Return the sampler that spends this budget and its n, as `subsampled` takes them."""
        return sampler_for(self.best, self.tokens, full=self.full)

    def to_dict(self) -> dict[str, Any]:
        """Return the head's entry in a budget file (docs/plan.md describes it)."""
        return {
            "head": self.head,
            "scheme": self.best,
            "tokens": self.tokens,
            "stored": self.stored,
            "kind": self.kind.name,
            "thinnable": self.kind.thinnable,
            "keep": self.kind.keep,
            "sink": self.kind.sink,
            "sink_weight": self.kind.sink_weight,
            "score_std": self.kind.score_std,
            "frozen": self.kind.frozen,
            "effective_tokens": self.kind.effective_tokens,
            "sees_all": self.full,
            "schemes": {
                name: {
                    "certified": scheme.certified,
                    "typical": scheme.typical,
                    "typical_reliable": scheme.typical_reliable,
                    "median_error": scheme.median_error,
                }
                for name, scheme in self.schemes.items()
            },
            "extrapolated": {f"{factor}x": found for factor, found in self.longer.items()},
        }

    @classmethod
    def from_dict(cls, entry: dict[str, Any], layer: int, context: int, terms: Terms) -> HeadBudget:
        """Rebuild a head's budget from its entry in a budget file."""
        kind = Kind(
            entry["kind"], entry["thinnable"], entry["keep"], entry["score_std"], entry["frozen"],
            entry["effective_tokens"], entry["sink"], entry["sink_weight"],
        )  # fmt: skip
        schemes = {name: SchemeBudget(name, **found) for name, found in entry["schemes"].items()}
        longer = {int(key[:-1]): found for key, found in entry["extrapolated"].items()}
        return cls(
            layer, entry["head"], context, terms, schemes, entry["scheme"], kind, longer,
            entry["sees_all"],
        )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """One row for each scheme."""
        rows = [
            {"layer": self.layer, "head": self.head, **vars(budget), "best": name == self.best}
            for name, budget in self.schemes.items()
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = [
            f"layer {self.layer}, head {self.head}: {self.tokens} of {self.context} tokens by "
            f"{self.best} ({self.kind.name}); keep {self.kind.keep}"
        ]
        for name, budget in self.schemes.items():
            certified = budget.certified if budget.certified is not None else "too many"
            typical = budget.typical if budget.typical is not None else "too many"
            lines.append(f"  {name:<15s} certified {certified:>8}   typical {typical:>8}")
        return "\n".join(lines)


def head_budget(head: CapturedHead, terms: Terms, *, queries: int = QUERIES) -> HeadBudget:
    """Budget of a captured head by every scheme, from the laws at some of its queries."""
    seen = Queries.of(head, queries)
    return budget_from(seen, all_schemes(seen), terms)


def budget_from(queries: Queries, schemes: dict[str, SchemeErrors], terms: Terms) -> HeadBudget:
    """Budget of a head whose schemes' errors are known."""
    head = queries.head
    context = len(head)
    needed = {name: _certified(errors, terms) for name, errors in schemes.items()}
    budgets = {}
    for name, errors in schemes.items():
        certified = int(needed[name]) if needed[name] <= context else None
        typical, reliable = _typical(queries, errors, terms, certified)
        median = float(np.median(errors.again(certified))) if certified is not None else 0.0
        budgets[name] = SchemeBudget(name, certified, typical, reliable, median)
    best = min(SCHEMES, key=lambda name: (needed[name], SCHEMES.index(name)))
    if needed[best] > context:
        best = "top-k"  # with every key kept, top-k is attention itself
    tokens = budgets[best].certified or context
    return HeadBudget(
        layer=head.layer,
        head=head.head,
        context=context,
        terms=terms,
        schemes=budgets,
        best=best,
        kind=kind_of(queries, best, tokens),
        longer={factor: _longer(needed, context, factor) for factor in FACTORS},
        full=head.mask.full,
    )


def _certified(errors: SchemeErrors, terms: Terms) -> float:
    """Smallest n at which the promised share of queries has its certificate."""
    if errors.drawn:
        return _smallest(errors, terms, terms.certified)
    return terms.over_queries(first_enough(errors.error, terms.epsilon, errors.n))


def _smallest(
    errors: SchemeErrors, terms: Terms, tolerance: float, precision: float = 0.0
) -> float:
    """Narrow the grid's interval to the n, within `precision`, at which the law says yes."""
    within = np.array([terms.over_queries(error) <= tolerance for error in errors.error.T])
    start = len(within) - int(np.cumprod(within[::-1]).sum())
    if start == len(within):
        return float("inf")
    if start == 0:
        return float(errors.n[0])
    low, high = int(errors.n[start - 1]), int(errors.n[start])
    above, below = (terms.over_queries(errors.error[:, k]) for k in (start - 1, start))
    turn = 0
    while high - low > max(1.0, precision * high):
        middle = (low + high) // 2
        if turn % 3 < 2 and 0 < below < tolerance < above < np.inf:  # aim at the crossing
            share = np.log(above / tolerance) / np.log(above / below)
            # A little to the side that was guessed last, so that the interval closes from both.
            middle = int(np.clip(low * (high / low) ** share + turn % 2, low + 1, high - 1))
        turn += 1
        error = terms.over_queries(errors.again(middle))
        if error <= tolerance:
            high, below = middle, error
        else:
            low, above = middle, error
    return float(high)


def _typical(
    queries: Queries, errors: SchemeErrors, terms: Terms, certified: int | None
) -> tuple[int | None, bool]:
    if not errors.drawn:
        return certified, True
    context = len(queries.head)
    if errors.scheme != "sample":
        needed = _smallest(errors, terms, terms.typical, precision=0.03)
        return (int(needed) if needed <= context else None), True
    counts = (queries.scores > -torch.inf).sum(1).double()
    traces, squares = [], []
    for weights, output, count in zip(queries.weights, queries.output, counts, strict=True):
        pull = weights[:, None] * (queries.values - output)
        covariance = count * pull.T @ pull
        traces.append(float(covariance.trace()))
        squares.append(float(covariance.square().sum()))
    tokens = np.maximum(
        np.ceil(terms.normal_tokens(np.array(traces), np.array(squares), queries.size)), 2
    )
    needed = terms.over_queries(tokens)
    crowding = (counts * queries.weights.square().sum(1)).numpy()
    reliable = bool(np.quantile(crowding, terms.quantile) / needed < MAX_PARTICIPATION)
    return (int(needed) if needed <= context else None), reliable


def _longer(needed: dict[str, float], context: int, factor: int) -> dict[str, int]:
    """Tokens at `factor` times the context, if scores and values keep their law.

    A draw with replacement needs as many tokens as before; the same share of the weight takes
    `factor` times as many top keys.
    """
    size = factor * context
    return {
        "sample": int(min(needed["sample"], size)),
        "top-k": int(min(factor * needed["top-k"], size)),
    }
