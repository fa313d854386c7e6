"""How wrong is each way of keeping tokens, against how many it keeps? Exact, query by query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.budgets.seen import Queries
from attnlimit.budgets.tail import Tail
from attnlimit.checks import Array
from attnlimit.samplers import Iid, Keep, Sampler, SinksAndRecent, SinksAndWindow, TopK
from attnlimit.theory.law.population import population_law
from attnlimit.theory.law.sampler import sampler_law

LONGEST = 100
"""How many times the context the i.i.d. law is followed, for longer contexts."""

SAMPLE_GRID = 24
LAW_GRID = 7
LAW_QUERIES = 64
FIXED_GRID = 48


def family(full: bool) -> dict[str, Sampler]:
    """Return the schemes of every budget: samplers to be sized, of queries that see all or not."""
    return {
        "sample": Iid(),
        "top-k": TopK(1),
        "local": SinksAndWindow() if full else SinksAndRecent(),
        "top-k + sample": Keep(TopK(1)),
    }


SCHEMES = tuple(family(full=True))


@dataclass(frozen=True, eq=False)
class Guess:
    """Errors that cost little, and exact ones at some queries."""

    first_order: Callable[[int], Array]  # n -> error (R,)
    some: Callable[[int, NDArray[np.int64]], Array]  # n, places among the queries -> their errors


@dataclass(frozen=True, eq=False)
class SchemeErrors:
    """Relative root mean square error of one scheme at R queries, against the tokens it keeps."""

    sampler: Sampler  # of any size
    n: NDArray[np.int64]  # (G,)
    at: Callable[[NDArray[np.int64]], Array]  # counts (C,) -> error (R, C), not interpolated
    seen: dict[int, Array] = field(default_factory=dict)
    guess: Guess | None = None  # a cheap one, where the law costs much

    @property
    def drawn(self) -> bool:
        """Whether anything is random; otherwise the error is a number."""
        return self.sampler.draws != "nothing"

    @cached_property
    def error(self) -> Array:
        """Error (R, G) at `n`, evaluated when it is first asked for."""
        error = self.at(self.n)
        self.seen.update(zip(self.n.tolist(), error.T, strict=True))
        return error

    def again(self, n: int) -> Array:
        """Error (R,) at one n, evaluated once."""
        if n not in self.seen:
            self.seen[n] = self.at(np.array([n]))[:, 0]
        return self.seen[n]


def all_schemes(
    queries: Queries, samplers: Mapping[str, Sampler] | None = None
) -> dict[str, SchemeErrors]:
    """Errors of every scheme at these queries, and of a user's own samplers beside them."""
    chosen = family(queries.head.mask.full) | dict(samplers or {})
    return {name: errors_of(sampler, queries) for name, sampler in chosen.items()}


def sized(sampler: Sampler, n: int) -> Sampler:
    """Return a sampler that keeps about `n` tokens; one that has a single size stays as it is."""
    return sampler.sized(n) if sampler.sizable else sampler


def errors_of(sampler: Sampler, queries: Queries) -> SchemeErrors:
    """Errors of any sampler against its size; all sizes at once for those that allow it."""
    if isinstance(sampler, Iid):
        return _sample(sampler, queries)
    if isinstance(sampler, TopK):
        return _kept(sampler, queries, (queries.weights.argsort(1, descending=True), None))
    if isinstance(sampler, (SinksAndRecent, SinksAndWindow)):
        return _kept(sampler, queries, _nearest(sampler, queries))
    return _by_law(sampler, queries)


def _sample(sampler: Iid, queries: Queries) -> SchemeErrors:
    """Keys drawn with replacement; followed past the context."""
    n = np.unique(np.geomspace(2, LONGEST * len(queries.head), SAMPLE_GRID).astype(np.int64))

    def at(counts: NDArray[np.int64]) -> Array:
        law = population_law(queries.scores, queries.values, np.maximum(counts, 2))
        return queries.relative(torch.from_numpy(np.sqrt(np.maximum(law.mse, 0))))

    return SchemeErrors(sampler, n, at)


def _by_law(sampler: Sampler, queries: Queries) -> SchemeErrors:
    """Any sampler by its own law, which costs the most by far: at fewer queries and sizes."""
    if len(queries.rows) > LAW_QUERIES:
        queries = Queries.of(queries.head, LAW_QUERIES)
    size, products = len(queries.head), queries.head.products(queries.rows)
    if not sampler.sizable:
        kept = sampler.seeing(products).keep(queries.scores, queries.rows).sum(-1).mean()
        n = np.array([int(np.ceil(float(kept)))])
    elif sampler.draws == "nothing":
        n = np.unique(np.geomspace(1, size, FIXED_GRID).round().astype(np.int64))
    else:
        few = np.geomspace(2, size // 2, LAW_GRID)
        n = np.unique(np.concatenate([few, [size * 3 // 4, size]])).astype(np.int64)

    def at(counts: NDArray[np.int64]) -> Array:
        seen = queries.scores, queries.values, queries.rows
        laws = [sampler_law(sized(sampler, int(count)).seeing(products), *seen) for count in counts]
        mse = np.stack([law.mse for law in laws], axis=1)
        return queries.relative(torch.from_numpy(np.sqrt(np.maximum(mse, 0))))

    if not (isinstance(sampler, Keep) and isinstance(sampler.kept, TopK) and sampler.weighted):
        return SchemeErrors(sampler, n, at)

    def some(count: int, places: NDArray[np.int64]) -> Array:
        scores, rows = queries.scores[places], queries.rows[places]
        mse = sampler_law(sized(sampler, count), scores, queries.values, rows).mse
        return np.asarray(np.sqrt(np.maximum(mse, 0)) / np.maximum(queries.size[places], 1e-300))

    return SchemeErrors(sampler, n, at, guess=Guess(Tail(queries).error, some))


def _growing(queries: Queries, order: Tensor, taken: Tensor | None = None) -> Tensor:
    """Errors (R, N) of the first n keys in an `order` (R, N) of each query's own, for every n.

    Infinite where nothing with weight is kept; keys that are not `taken` (R, N) never are.
    """
    weights = queries.weights if taken is None else queries.weights * taken
    weights = weights.gather(1, order)
    mass = weights.cumsum(1)
    error = torch.empty_like(mass)
    for row in range(len(mass)):  # one at a time: it fits the cache
        pull = (queries.values[order[row]] - queries.output[row]).mul_(weights[row, :, None])
        torch.linalg.vector_norm(pull.cumsum_(0), dim=1, out=error[row])
    return torch.where(mass > 1e-12, error / mass.clamp_min(1e-300), torch.inf)


def _nearest(
    sampler: SinksAndRecent | SinksAndWindow, queries: Queries
) -> tuple[Tensor, Tensor | None]:
    """Keys (R, N) in the order in which the sampler takes them as it grows, if it does."""
    size = len(queries.head)
    place = torch.arange(size)
    distance = queries.rows[:, None] - place
    if isinstance(sampler, SinksAndWindow):
        late = 2 * distance.abs() - (distance > 0).long()  # the one before, the one after, ...
        taken = None
    else:
        late = torch.where(distance >= 0, distance, size + place)
        taken = (distance >= 0) | (place < sampler.sinks)
    return torch.where(place < sampler.sinks, place - size, late).argsort(1), taken


def _kept(sampler: Sampler, queries: Queries, order: tuple[Tensor, Tensor | None]) -> SchemeErrors:
    relative = queries.relative(_growing(queries, *order))
    n = np.arange(1, relative.shape[1] + 1)
    return SchemeErrors(sampler, n, lambda counts: relative[:, counts.clip(1, len(n)) - 1])
