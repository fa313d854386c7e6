"""Was the promise kept? Draws on a text, at a plan's budgets, and how many stay within epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlimit import checks
from attnlimit.budgets.model import Plan
from attnlimit.budgets.schemes import Queries
from attnlimit.checks import Array
from attnlimit.models.captured import Capture
from attnlimit.models.schemes import scheme_of
from attnlimit.montecarlo.samplers import Iid

BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class Promise:
    """Share of draws (query and sample) whose relative error is at most epsilon, by head."""

    rows: pd.DataFrame  # layer, head, scheme, tokens, kept, worst, draws
    epsilon: float
    delta: float

    @property
    def share(self) -> float:
        """Over all heads, each counted alike: where nothing is drawn, every draw is the same."""
        return float(self.rows.kept.mean())

    @property
    def broken(self) -> pd.DataFrame:
        """Heads that met the error in fewer than 1 - delta of their draws."""
        return self.rows[self.rows.kept < 1 - self.delta]

    def to_frame(self) -> pd.DataFrame:
        """One row for each head."""
        return self.rows

    def __str__(self) -> str:
        return (
            f"relative error at most {self.epsilon:g} in {self.share:.2%} of "
            f"the draws of {len(self.rows)} heads (promised {1 - self.delta:.0%}); "
            f"{len(self.broken)} of {len(self.rows)} heads below it on their own"
        )


def keep_promise(
    plan: Plan, capture: Capture, *, queries: int = 64, draws: int = 50, seed: int = 0
) -> Promise:
    """Spend a plan's budgets on `capture`, which may be of another text, and count."""
    count = checks.count(draws, "draws")
    rows = []
    children = np.random.SeedSequence(seed).spawn(len(plan.heads))
    for budget, child in zip(plan.heads, children, strict=True):
        seen = Queries.of(capture[budget.layer, budget.head], queries)
        error = drawn_errors(seen, *budget.sampler(), count, np.random.default_rng(child))
        rows.append(
            {
                "layer": budget.layer,
                "head": budget.head,
                "scheme": budget.best,
                "tokens": budget.tokens,
                "kept": float((error <= plan.terms.epsilon).mean()),
                "median": float(np.median(error)),
                "draws": error.size,
            }
        )
    return Promise(pd.DataFrame(rows), plan.terms.epsilon, plan.terms.delta)


def drawn_errors(
    queries: Queries, sampler: Any, n: int | None, draws: int, rng: np.random.Generator
) -> Array:
    """Relative errors (draws, R) of attention over drawn keys, each query drawing for itself."""
    scores, values = queries.scores, queries.values
    iid = isinstance(sampler, Iid)
    size_drawn = checks.count(n, "n") if iid else 0
    visible = scores > -torch.inf
    if iid:
        chance = visible / visible.sum(1, keepdim=True)
        log_weight = scores
    else:
        scheme = scheme_of(sampler)
        chance = scheme.probabilities(scores, queries.rows)
        log_weight = scores - torch.log(chance) if scheme.weighted else scores
        if not ((chance > 0) & (chance < 1)).any():
            draws = 1  # nothing is drawn
    block = max(1, BLOCK // scores.numel())
    found = []
    for start in range(0, draws, block):
        size = min(block, draws - start)
        if iid:
            picked = rng.multinomial(size_drawn, chance.numpy(), size=(size, len(chance)))
            logits = log_weight + torch.log(torch.from_numpy(picked).double())
        else:
            kept = torch.from_numpy(rng.random((size, *scores.shape))) < chance
            logits = log_weight.expand(kept.shape).masked_fill(~kept, -torch.inf)
        output = torch.softmax(logits, -1) @ values
        found.append((output - queries.output).norm(dim=-1))
    return queries.relative(torch.cat(found).T).T
