"""Certified number of tokens of one captured head, and the tolerance of a budget.

A budget promises a relative error epsilon with probability 1 - delta, for a share of the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.captured import CapturedHead
from attnlimit.result import Result
from attnlimit.samplers import Iid, Keep, Sampler, SinksAndRecent, SinksAndWindow, TopK
from attnlimit.samplers.base import check_sampler
from attnlimit.theory.one_query.sampler import sampler_law
from attnlimit.threads import one_thread

QUANTILE = 0.99


@dataclass(frozen=True)
class Tolerance:
    """Relative error `epsilon` with probability 1 - `delta`, for a share `quantile` of queries."""

    epsilon: float = 0.1
    delta: float = 0.05
    quantile: float = QUANTILE

    def __post_init__(self) -> None:
        checks.positive(self.epsilon, "epsilon")
        if not 0 < checks.real_number(self.delta, "delta") < 1:
            raise BadInput(f"delta must lie between 0 and 1, got {self.delta:g}.")
        if not 0 < checks.real_number(self.quantile, "quantile") <= 1:
            raise BadInput(f"quantile must lie in (0, 1], got {self.quantile:g}.")

    @property
    def certified(self) -> float:
        """Largest relative root mean square error that Chebyshev's inequality certifies."""
        return self.epsilon * float(np.sqrt(self.delta))

    @property
    def typical(self) -> float:
        """The same for a normal error on a line, the normal law with the widest tail."""
        return self.epsilon / float(norm.isf(self.delta / 2))

    def normal_tokens(self, trace: Array, trace_of_square: Array, size: Array) -> Array:
        """Return the n at which |N(0, C/n)| is below epsilon `size` with probability 1 - delta.

        |N(0, C)|^2 is taken as a multiple of a chi-squared variable with its mean tr C and its
        variance 2 tr C^2 (Satterthwaite).
        """
        freedom = trace**2 / np.maximum(trace_of_square, 1e-300)
        with np.errstate(divide="ignore", invalid="ignore"):
            widest = trace / freedom * chi2.isf(self.delta, freedom)
            return np.where(trace > 0, widest / (self.epsilon * size) ** 2, 1.0)

    def over_queries(self, values: Array) -> float:
        """Quantile of a number by query, at the share of queries that is promised."""
        return float(np.quantile(values, self.quantile, method="higher"))


def first_within(error: Array, tolerance: float) -> NDArray[np.int64]:
    """Index along the last axis from which `error` stays within tolerance; its length if none."""
    within = error <= tolerance
    return np.asarray(within.shape[-1] - np.cumprod(within[..., ::-1], axis=-1).sum(-1))


def smallest_on_grid(
    error_at: Callable[[int], float],
    n: NDArray[np.int64],
    error: Array,
    tolerance: float,
    precision: float = 0.0,
) -> float:
    """Smallest n within tolerance, by bisection between sizes of a grid; infinite if there is none.

    `precision` is the share of n by which the answer may be too large.
    """
    place = int(first_within(error, tolerance))
    if place in (0, len(n)):
        return float(n[0]) if place == 0 else float("inf")
    low, high = int(n[place - 1]), int(n[place])
    while high - low > max(1.0, precision * high):
        middle = (low + high) // 2
        if error_at(middle) <= tolerance:
            high = middle
        else:
            low = middle
    return float(high)


QUERIES = 128
LAW_QUERIES = 32
"""Queries at which a law that is integrated numerically is evaluated."""
PRECISION = 0.01
"""Share by which the n of a sampler that draws may exceed the smallest."""


def schemes(full: bool) -> dict[str, Sampler]:
    """Return the samplers of every budget, for queries that see all keys or earlier ones only."""
    return {
        "sample": Iid(),
        "top-k": TopK(1),
        "local": SinksAndWindow() if full else SinksAndRecent(),
        "top-k + sample": Keep(TopK(1)),
    }


SCHEMES = tuple(schemes(full=True))


@dataclass(frozen=True)
class SchemeBudget:
    """Tokens that one sampler needs; None where not even the whole context is enough.

    `certified` rests on the exact law and Chebyshev's inequality, or on the error itself where
    nothing is drawn. `typical` is that of a normal error with the exact mean square.
    """

    scheme: str
    certified: int | None
    typical: int | None
    median_error: float  # relative, over queries, at the certified budget


@dataclass(frozen=True)
class HeadBudget(Result):
    """Budgets of one head by sampler; `best` names the one with the fewest certified tokens."""

    layer: int
    head: int
    context: int
    tolerance: Tolerance
    schemes: dict[str, SchemeBudget]
    best: str
    samplers: Mapping[str, Sampler]  # of each scheme, of any size

    @property
    def tokens(self) -> int:
        """Certified tokens of the best sampler; the whole context where none is enough."""
        return self.schemes[self.best].certified or self.context

    def sampler(self) -> Sampler:
        """Return the best sampler at its certified size."""
        return _resized(self.samplers[self.best], self.tokens)

    def to_frame(self) -> pd.DataFrame:
        """One row for each sampler."""
        frame = pd.DataFrame([vars(budget) for budget in self.schemes.values()])
        frame.insert(0, "layer", self.layer)
        frame.insert(1, "head", self.head)
        return frame.assign(best=frame.scheme == self.best)

    def __str__(self) -> str:
        lines = [
            f"layer {self.layer}, head {self.head}: {self.tokens} of {self.context} tokens by "
            f"{self.best}"
        ]
        for name, budget in self.schemes.items():
            certified, typical = budget.certified or "too many", budget.typical or "too many"
            lines.append(f"  {name:<15s} certified {certified:>8}   typical {typical:>8}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class QuerySample:
    """Some queries of a captured head, with all keys they see."""

    head: CapturedHead
    rows: Tensor  # (R,) their places
    scores: Tensor  # (R, N) float64
    values: Tensor  # (N, d_v) float64

    @classmethod
    def of(cls, head: CapturedHead, most: int) -> QuerySample:
        """At most `most` queries, evenly spread; the later half of a causal model's."""
        first = 0 if head.mask.full else len(head) // 2
        places = np.linspace(first, len(head) - 1, min(len(head) - first, most))
        rows = torch.from_numpy(np.unique(places.astype(np.int64)))
        return cls(head, rows, head.scores(rows).double(), head.v.double())


@dataclass(frozen=True, eq=False)
class SizedErrors:
    """Relative root mean square error of one sampler at R queries, against the tokens it keeps."""

    sampler: Sampler  # of any size
    queries: QuerySample
    known: dict[int, Array] = field(default_factory=dict)

    @property
    def drawn(self) -> bool:
        """Whether keys are drawn at random; otherwise the error is a number."""
        return self.sampler.draws != "nothing"

    def sizes(self) -> NDArray[np.int64]:
        """Numbers of tokens among which the smallest is searched first."""
        size = len(self.queries.head)
        if self.sampler.draws == "with replacement":  # beyond the context too
            return np.unique(np.geomspace(2, 100 * size, 24).astype(np.int64))
        if not self.sampler.resizable:
            bound = self.sampler.bind(self.queries.head.products(self.queries.rows))
            kept = bound.inclusion_probabilities(self.queries.scores, self.queries.rows).sum(-1)
            return np.array([int(np.ceil(float(kept.mean())))])
        if not self.drawn:
            return np.unique(np.geomspace(1, size, 48).round().astype(np.int64))
        few = np.geomspace(2, size // 2, 7)
        return np.unique(np.concatenate([few, [size * 3 // 4, size]])).astype(np.int64)

    def at_size(self, n: int) -> Array:
        """Error (R,) by the sampler's law, evaluated once for each n."""
        if n not in self.known:
            sample = self.queries
            bound = _resized(self.sampler, n).bind(sample.head.products(sample.rows))
            law = sampler_law(bound, sample.scores, sample.values, sample.rows)
            size = np.maximum(np.linalg.norm(law.output, axis=1), 1e-300)
            self.known[n] = np.sqrt(np.maximum(law.mse, 0)) / size
        return self.known[n]

    def smallest(self, tolerance: Tolerance, largest: float) -> float:
        """Smallest n from which on the promised share of queries errs by at most `largest`.

        What draws nothing need not err less with each key, so every n before the first of the
        sizes that stay within is looked at.
        """

        def error(n: int) -> float:
            return tolerance.over_queries(self.at_size(n))

        sizes = self.sizes()
        grid = np.array([error(int(n)) for n in sizes])
        if self.drawn:
            return smallest_on_grid(error, sizes, grid, largest, PRECISION)
        place = int(first_within(grid, largest))
        if place in (0, len(sizes)):
            return float(sizes[0]) if place == 0 else float("inf")
        between = np.arange(sizes[place - 1], sizes[place] + 1)
        errors = np.array([error(int(n)) for n in between])
        return float(between[first_within(errors, largest)])


@one_thread()
def captured_head_budget(
    head: CapturedHead,
    tolerance: Tolerance,
    *,
    queries: int = QUERIES,
    samplers: Mapping[str, Sampler] | None = None,
) -> HeadBudget:
    """Budget of a captured head by every sampler, from the laws at some of its queries.

    `samplers` are budgeted beside the schemes, by names of their own.
    """
    for name, sampler in (samplers or {}).items():
        check_sampler(sampler)
        if name in SCHEMES:
            raise BadInput(f"{name!r} is one of the schemes; give your sampler another name.")
    chosen, context = schemes(head.mask.full) | dict(samplers or {}), len(head)
    needed: dict[str, float] = {}
    budgets = {}
    for name, sampler in chosen.items():
        most = queries if sampler.draws == "nothing" else min(queries, LAW_QUERIES)
        sized = SizedErrors(sampler, QuerySample.of(head, most))
        if sized.drawn:
            needed[name] = sized.smallest(tolerance, tolerance.certified)
            typical = sized.smallest(tolerance, tolerance.typical)
        else:
            typical = needed[name] = sized.smallest(tolerance, tolerance.epsilon)
        certified, usual = (int(n) if n <= context else None for n in (needed[name], typical))
        median = 0.0 if certified is None else float(np.median(sized.at_size(certified)))
        budgets[name] = SchemeBudget(name, certified, usual, median)
    best = min(needed, key=lambda name: needed[name])
    if needed[best] > context:
        best = "top-k"  # with every key kept, top-k is attention itself
    return HeadBudget(head.layer, head.head, context, tolerance, budgets, best, chosen)


def _resized(sampler: Sampler, n: int) -> Sampler:
    """Return a sampler that keeps about `n` tokens; one of a single size as it is."""
    return sampler.with_size(n) if sampler.resizable else sampler
