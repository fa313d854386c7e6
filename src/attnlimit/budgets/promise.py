"""Was the promise kept? Draws on a text, at a plan's budgets, and how many stay within epsilon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from attnlimit import checks
from attnlimit.budgets.model import Plan
from attnlimit.budgets.seen import Queries
from attnlimit.checks import Array
from attnlimit.models.captures import Capture
from attnlimit.montecarlo.sampled import drawn_outputs, generator_of
from attnlimit.samplers import Sampler
from attnlimit.threads import one_thread


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


@one_thread()
def keep_promise(
    plan: Plan, capture: Capture, *, queries: int = 64, draws: int = 50, seed: int = 0
) -> Promise:
    """Spend a plan's budgets on `capture`, which may be of another text, and count."""
    count = checks.count(draws, "draws")
    rows = []
    children = np.random.SeedSequence(seed).spawn(len(plan.heads))
    for budget, child in zip(plan.heads, children, strict=True):
        seen = Queries.of(capture[budget.layer, budget.head], queries)
        error = drawn_errors(seen, budget.sampler(), count, child)
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
    queries: Queries, sampler: Sampler, draws: int, seed: np.random.SeedSequence
) -> Array:
    """Relative errors (draws, R) of attention over drawn keys, each query drawing for itself."""
    count = 1 if sampler.draws == "nothing" else draws
    seen = queries.scores, queries.values, queries.rows
    chosen = sampler.seeing(queries.head.products(queries.rows))
    blocks = drawn_outputs(chosen, *seen, count, generator_of(seed))
    found = [(output - queries.output).norm(dim=-1) for output in blocks]
    return queries.relative(torch.cat(found).T).T
