"""Certified number of tokens of one captured head, by several samplers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.constants import MAX_PARTICIPATION
from attnlimit.errors import BadInput
from attnlimit.models.captured import CapturedHead
from attnlimit.planning.search import Tolerance, first_within, smallest_on_grid
from attnlimit.result import Result
from attnlimit.samplers import Iid, Keep, Sampler, SinksAndRecent, SinksAndWindow, TopK
from attnlimit.samplers.base import check_sampler
from attnlimit.theory.one_query.first_order import key_variances, squared_distances
from attnlimit.theory.one_query.population import population_law
from attnlimit.theory.one_query.sampler import sampler_law
from attnlimit.threads import one_thread

QUERIES = 128
LAW_QUERIES = 32
"""Queries at which a law that is integrated numerically is evaluated."""
SAMPLE_GRID = 24
LAW_GRID = 7
FIXED_GRID = 48
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
    nothing is drawn. `typical` is the delta method's (sample), or that of a normal error with the
    exact mean square; `typical_reliable` is false where weights are too concentrated for it.
    """

    scheme: str
    certified: int | None
    typical: int | None
    typical_reliable: bool
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
    weights: Tensor  # (R, N)
    output: Tensor  # (R, d_v)
    size: Array  # (R,) |Gamma|

    @classmethod
    def of(cls, head: CapturedHead, most: int) -> QuerySample:
        """At most `most` queries, evenly spread; the later half of a causal model's."""
        first = 0 if head.mask.full else len(head) // 2
        places = np.linspace(first, len(head) - 1, min(len(head) - first, most))
        rows = torch.from_numpy(np.unique(places.astype(np.int64)))
        scores, values = head.scores(rows).double(), head.v.double()
        weights = torch.softmax(scores, -1)
        output = weights @ values
        return cls(head, rows, scores, values, weights, output, output.norm(dim=1).numpy())

    def relative(self, error: Tensor) -> Array:
        """`error` (R, G) over the norm of each query's output."""
        return (error / torch.from_numpy(self.size)[:, None].clamp_min(1e-300)).numpy()


@dataclass(frozen=True, eq=False)
class SizedErrors:
    """Relative root mean square error of one sampler at R queries, against the tokens it keeps."""

    sampler: Sampler  # of any size
    n: NDArray[np.int64]  # (G,)
    at: Callable[[NDArray[np.int64]], Array]  # counts (C,) -> error (R, C), not interpolated
    known: dict[int, Array] = field(default_factory=dict)

    @property
    def drawn(self) -> bool:
        """Whether keys are drawn at random; otherwise the error is a number."""
        return self.sampler.draws != "nothing"

    @cached_property
    def error(self) -> Array:
        """Error (R, G) at `n`."""
        error = self.at(self.n)
        self.known.update(zip(self.n.tolist(), error.T, strict=True))
        return error

    def at_size(self, n: int) -> Array:
        """Error (R,) at one n, evaluated once."""
        if n not in self.known:
            self.known[n] = self.at(np.array([n]))[:, 0]
        return self.known[n]


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
    sample, context = QuerySample.of(head, queries), len(head)
    chosen = schemes(head.mask.full) | dict(samplers or {})
    errors = {name: sized_errors(sampler, sample) for name, sampler in chosen.items()}
    needed, budgets = {}, {}
    for name, sized in errors.items():
        needed[name] = _certified(sized, tolerance)
        certified = int(needed[name]) if needed[name] <= context else None
        typical, reliable = _typical(sample, sized, tolerance, certified, context)
        median = 0.0 if certified is None else float(np.median(sized.at_size(certified)))
        budgets[name] = SchemeBudget(name, certified, typical, reliable, median)
    best = min(needed, key=lambda name: needed[name])
    if needed[best] > context:
        best = "top-k"  # with every key kept, top-k is attention itself
    return HeadBudget(head.layer, head.head, context, tolerance, budgets, best, chosen)


def sized_errors(sampler: Sampler, queries: QuerySample) -> SizedErrors:
    """Errors of any sampler against its size; all sizes at once for those that allow it."""
    if sampler.draws == "with replacement":
        return _by_replacement(sampler, queries)
    order = sampler.order(queries.scores, queries.rows)
    return _by_law(sampler, queries) if order is None else _by_order(sampler, queries, *order)


def _resized(sampler: Sampler, n: int) -> Sampler:
    """Return a sampler that keeps about `n` tokens; one of a single size as it is."""
    return sampler.with_size(n) if sampler.resizable else sampler


def _by_replacement(sampler: Sampler, queries: QuerySample) -> SizedErrors:
    """Keys drawn with replacement, beyond the context too."""
    n = np.unique(np.geomspace(2, 100 * len(queries.head), SAMPLE_GRID).astype(np.int64))

    def at(counts: NDArray[np.int64]) -> Array:
        law = population_law(queries.scores, queries.values, np.maximum(counts, 2))
        return queries.relative(torch.from_numpy(np.sqrt(np.maximum(law.mse, 0))))

    return SizedErrors(sampler, n, at)


def _by_law(sampler: Sampler, queries: QuerySample) -> SizedErrors:
    """Any sampler by its own law, at fewer queries and sizes because each costs a quadrature."""
    if len(queries.rows) > LAW_QUERIES:
        queries = QuerySample.of(queries.head, LAW_QUERIES)
    size, products = len(queries.head), queries.head.products(queries.rows)
    if not sampler.resizable:
        kept = (
            sampler.bind(products)
            .inclusion_probabilities(queries.scores, queries.rows)
            .sum(-1)
            .mean()
        )
        n = np.array([int(np.ceil(float(kept)))])
    elif sampler.draws == "nothing":
        n = np.unique(np.geomspace(1, size, FIXED_GRID).round().astype(np.int64))
    else:
        few = np.geomspace(2, size // 2, LAW_GRID)
        n = np.unique(np.concatenate([few, [size * 3 // 4, size]])).astype(np.int64)

    def at(counts: NDArray[np.int64]) -> Array:
        inputs = queries.scores, queries.values, queries.rows
        laws = [sampler_law(_resized(sampler, int(c)).bind(products), *inputs) for c in counts]
        mse = np.stack([law.mse for law in laws], axis=1)
        return queries.relative(torch.from_numpy(np.sqrt(np.maximum(mse, 0))))

    return SizedErrors(sampler, n, at)


def _by_order(sampler: Sampler, queries: QuerySample, order: Tensor, taken: Tensor) -> SizedErrors:
    """Errors of the first n keys in an `order` (R, N) of each query's own, for every n.

    Infinite where nothing with weight is kept; keys that are not `taken` (R, N) never are.
    """
    weights = (queries.weights * taken).gather(1, order)
    mass = weights.cumsum(1)
    error = torch.empty_like(mass)
    for row in range(len(mass)):  # one at a time: it fits the cache
        pull = (queries.values[order[row]] - queries.output[row]).mul_(weights[row, :, None])
        torch.linalg.vector_norm(pull.cumsum_(0), dim=1, out=error[row])
    error = torch.where(mass > 1e-12, error / mass.clamp_min(1e-300), torch.inf)
    relative = queries.relative(error)
    n = np.arange(1, relative.shape[1] + 1)
    return SizedErrors(sampler, n, lambda counts: relative[:, counts.clip(1, len(n)) - 1])


def _certified(errors: SizedErrors, tolerance: Tolerance) -> float:
    """Smallest n at which the promised share of queries has its certificate."""
    if not errors.drawn:
        n = np.append(errors.n.astype(np.float64), np.inf)
        return tolerance.over_queries(n[first_within(errors.error, tolerance.epsilon)])
    return _smallest(errors, tolerance, tolerance.certified)


def _smallest(errors: SizedErrors, tolerance: Tolerance, largest: float) -> float:
    grid = np.array([tolerance.over_queries(error) for error in errors.error.T])

    def law(n: int) -> float:
        return tolerance.over_queries(errors.at_size(n))

    return smallest_on_grid(law, errors.n, grid, largest, PRECISION)


def _typical(
    queries: QuerySample,
    errors: SizedErrors,
    tolerance: Tolerance,
    certified: int | None,
    context: int,
) -> tuple[int | None, bool]:
    """Tokens without a certificate, None past the context, and whether their law is reliable."""
    if not errors.drawn:
        return certified, True
    if errors.sampler.draws != "with replacement":
        needed = _smallest(errors, tolerance, tolerance.typical)
        return (int(needed) if needed <= context else None), True
    needed, participation = _normal_tokens(queries, tolerance)
    reliable = bool(participation / needed < MAX_PARTICIPATION)
    return (int(needed) if needed <= context else None), reliable


def _normal_tokens(queries: QuerySample, tolerance: Tolerance) -> tuple[float, float]:
    """Tokens drawn with replacement by the normal law, and the participation ratio times N."""
    counts = (queries.scores > -torch.inf).sum(1).double()
    square, values, output = queries.weights.square(), queries.values, queries.output
    participation = float(np.quantile((counts * square.sum(1)).numpy(), tolerance.quantile))
    terms = key_variances(queries.weights, counts[:, None], squared_distances(values, output))
    traces = terms.sum(1).numpy()
    width = values.shape[1]
    first, second = torch.triu_indices(width, width)
    # sum_j p_j^2 (v_j - o)(v_j - o)' from the products of values that all queries share.
    pull, mass = square @ values, square.sum(1)
    pairs = square @ (values[:, first] * values[:, second])
    pairs -= pull[:, first] * output[:, second] + output[:, first] * pull[:, second]
    pairs += mass[:, None] * output[:, first] * output[:, second]
    twice = torch.where(first == second, 1.0, 2.0).double()
    squares = (counts**2 * (pairs.square() @ twice)).numpy()
    tokens = tolerance.normal_tokens(traces, squares, queries.size)
    return tolerance.over_queries(np.maximum(np.ceil(tokens), 2)), participation
