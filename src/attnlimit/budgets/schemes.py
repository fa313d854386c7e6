"""How wrong is each way of keeping tokens, against how many it keeps? Exact, query by query."""

from __future__ import annotations

from collections.abc import Callable
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

SINKS = 4
LONGEST = 100
"""How many times the context the i.i.d. law is followed, for longer contexts."""

SAMPLE_GRID = 24
MIXED_GRID = 7
MIXED_QUERIES = 64


@dataclass(frozen=True, eq=False)
class SchemeErrors:
    """Relative root mean square error of one scheme at R queries, against the tokens it keeps.

    Nothing is random in a scheme that draws nothing (`drawn` false): its error is a number.
    """

    scheme: str
    n: NDArray[np.int64]  # (G,)
    drawn: bool
    at: Callable[[NDArray[np.int64]], Array]  # counts (C,) -> error (R, C), not interpolated
    seen: dict[int, Array] = field(default_factory=dict)

    @cached_property
    def error(self) -> Array:
        """Error (R, G) at `n`, evaluated when it is first asked for."""
        return self.at(self.n)

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


def all_schemes(queries: Queries) -> dict[str, SchemeErrors]:
    """Every scheme at these queries: sample, top-k, local, and top-k with a weighted sample."""
    found = [sample(queries), top(queries), local(queries), mixed(queries)]
    return {errors.scheme: errors for errors in found}


def sampler_for(scheme: str, n: int, *, full: bool) -> Sampler:
    """Return the sampler that keeps `n` tokens by `scheme`."""
    family: dict[str, Sampler] = {
        "sample": Iid(),
        "top-k": TopK(1),
        "local": (SinksAndWindow if full else SinksAndRecent)(SINKS),
        "top-k + sample": Keep(TopK(1)),
    }
    return family[scheme].sized(n)


def sample(queries: Queries) -> SchemeErrors:
    """n keys drawn with replacement, alike for every key; followed past the context."""
    size = len(queries.head)
    n = np.unique(np.geomspace(2, LONGEST * size, SAMPLE_GRID).astype(np.int64))

    def at(counts: NDArray[np.int64]) -> Array:
        law = population_law(queries.scores, queries.values, np.maximum(counts, 2))
        return queries.relative(torch.from_numpy(np.sqrt(np.maximum(law.mse, 0))))

    return SchemeErrors("sample", n, True, at)


def top(queries: Queries) -> SchemeErrors:
    """The k keys of the highest score, for every k at once."""
    weights, order = torch.sort(queries.weights, dim=1, descending=True)
    error = torch.stack(
        [
            _partial_error(torch.cumsum(w, 0), torch.cumsum(w[:, None] * queries.values[o], 0), out)
            for w, o, out in zip(weights, order, queries.output, strict=True)
        ]
    )
    return _kept("top-k", queries, error)


def local(queries: Queries) -> SchemeErrors:
    """The first four keys, and those around the query or, for a causal model, just before it."""
    size = len(queries.head)
    weighted = queries.weights[..., None] * queries.values  # (R, N, d_v)
    zero = torch.zeros(1, queries.values.shape[1] + 1, dtype=torch.double)
    kept = torch.arange(1, size + 1)
    sinks = kept.clamp_max(SINKS)
    near = kept - sinks
    error = []
    for row, w, wv, out in zip(
        queries.rows, queries.weights, weighted, queries.output, strict=True
    ):
        sums = torch.cat([zero, torch.cumsum(torch.cat([wv, w[:, None]], 1), 0)])
        if queries.head.mask.full:
            start = torch.maximum(torch.minimum(row - near // 2, size - near), sinks)
            end = start + near
        else:
            end = torch.maximum(row + 1, sinks)
            start = torch.maximum(end - near, sinks)
        total = sums[sinks] + sums[end] - sums[start]
        error.append(_partial_error(total[:, -1], total[:, :-1], out))
    return _kept("local", queries, torch.stack(error))


def mixed(queries: Queries) -> SchemeErrors:
    """Half the tokens the best keys, half a weighted sample of the rest.

    Its law costs the most by far, and is evaluated at fewer queries.
    """
    if len(queries.rows) > MIXED_QUERIES:
        queries = Queries.of(queries.head, MIXED_QUERIES)
    size = len(queries.head)
    n = np.unique(
        np.concatenate([np.geomspace(2, size // 2, MIXED_GRID), [size * 3 // 4, size]])
    ).astype(np.int64)

    def at(counts: NDArray[np.int64]) -> Array:
        columns = []
        for count in counts:
            sampler = sampler_for("top-k + sample", int(count), full=True)
            law = sampler_law(sampler, queries.scores, queries.values, queries.rows)
            columns.append(np.sqrt(np.maximum(law.mse, 0)))
        return queries.relative(torch.from_numpy(np.stack(columns, axis=1)))

    return SchemeErrors("top-k + sample", n, True, at)


def _partial_error(mass: Tensor, sums: Tensor, output: Tensor) -> Tensor:
    """|sums / mass - output| for each amount kept; infinite where nothing with weight is kept."""
    share = mass.clamp_min(1e-300)[:, None]
    error = (sums / share - output).norm(dim=1)
    return torch.where(mass > 1e-12, error, torch.inf)


def _kept(name: str, queries: Queries, error: Tensor) -> SchemeErrors:
    relative = queries.relative(error)
    size = relative.shape[1]
    return SchemeErrors(
        name, np.arange(1, size + 1), False, lambda counts: relative[:, counts.clip(1, size) - 1]
    )
