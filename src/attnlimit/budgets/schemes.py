"""How wrong is each way of keeping tokens, against how many it keeps? Exact, query by query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.capture.captured import CapturedHead
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
class SchemeErrors:
    """Relative root mean square error of one scheme at R queries, against the tokens it keeps."""

    sampler: Sampler  # of any size
    n: NDArray[np.int64]  # (G,)
    at: Callable[[NDArray[np.int64]], Array]  # counts (C,) -> error (R, C), not interpolated
    seen: dict[int, Array] = field(default_factory=dict)

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


@dataclass(frozen=True, eq=False)
class Queries:
    """Some queries of a captured head, with all they see."""

    head: CapturedHead
    rows: Tensor  # (R,) their places
    scores: Tensor  # (R, N) float64
    values: Tensor  # (N, d_v) float64
    weights: Tensor  # (R, N)
    output: Tensor  # (R, d_v)
    size: Array  # (R,) |Gamma|

    @classmethod
    def of(cls, head: CapturedHead, most: int) -> Queries:
        """At most `most` queries, evenly spread; the later half of a causal model's."""
        first = 0 if head.mask.full else len(head) // 2
        places = np.linspace(first, len(head) - 1, min(len(head) - first, most))
        rows = torch.from_numpy(np.unique(places.astype(np.int64)))
        scores, values = head.scores(rows).double(), head.v.double()
        weights = torch.softmax(scores, -1)
        output = weights @ values
        return cls(head, rows, scores, values, weights, output, output.norm(dim=1).numpy())

    def relative(self, error: Tensor) -> Array:
        """`error` (R, G) over the size of each query's output."""
        return (error / torch.from_numpy(self.size)[:, None].clamp_min(1e-300)).numpy()


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
        return _kept(sampler, queries, _best_keys(queries))
    if isinstance(sampler, (SinksAndRecent, SinksAndWindow)):
        return _kept(sampler, queries, _near_keys(sampler, queries))
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

    return SchemeErrors(sampler, n, at)


def _best_keys(queries: Queries) -> Tensor:
    """Errors (R, N) of the k best keys, for every k."""
    weights, order = torch.sort(queries.weights, dim=1, descending=True)
    return torch.stack(
        [
            _partial_error(torch.cumsum(w, 0), torch.cumsum(w[:, None] * queries.values[o], 0), out)
            for w, o, out in zip(weights, order, queries.output, strict=True)
        ]
    )


def _near_keys(sampler: SinksAndRecent | SinksAndWindow, queries: Queries) -> Tensor:
    """Errors (R, N) of the first keys and those around or before the query, for every number."""
    size = len(queries.head)
    zero = torch.zeros(1, queries.values.shape[1] + 1, dtype=torch.double)
    kept = torch.arange(1, size + 1)
    sinks = kept.clamp_max(sampler.sinks)
    near = kept - sinks
    error = []
    rows = zip(queries.rows, queries.weights, queries.output, strict=True)
    for row, w, out in rows:  # one at a time: (R, N, d_v) numbers would be the largest of all
        weighted = torch.cat([w[:, None] * queries.values, w[:, None]], 1)
        sums = torch.cat([zero, torch.cumsum(weighted, 0)])
        if isinstance(sampler, SinksAndWindow):
            start = torch.maximum(torch.minimum(row - near // 2, size - near), sinks)
            end = start + near
        else:
            end = torch.maximum(row + 1, sinks)
            start = torch.maximum(end - near, sinks)
        total = sums[sinks] + sums[end] - sums[start]
        error.append(_partial_error(total[:, -1], total[:, :-1], out))
    return torch.stack(error)


def _partial_error(mass: Tensor, sums: Tensor, output: Tensor) -> Tensor:
    """|sums / mass - output| for each amount kept; infinite where nothing with weight is kept."""
    error = (sums / mass.clamp_min(1e-300)[:, None] - output).norm(dim=1)
    return torch.where(mass > 1e-12, error, torch.inf)


def _kept(sampler: Sampler, queries: Queries, error: Tensor) -> SchemeErrors:
    relative = queries.relative(error)
    n = np.arange(1, relative.shape[1] + 1)
    return SchemeErrors(sampler, n, lambda counts: relative[:, counts.clip(1, len(n)) - 1])
