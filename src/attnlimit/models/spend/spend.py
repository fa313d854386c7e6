"""How does a model run on fewer keys? Each query of each head draws its own, cache or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import (
    BLOCK_SCORES,
    attend_dense,
    call_products,
    call_scores,
    grouped,
)
from attnlimit.models.capture.encode import unwrap
from attnlimit.models.capture.interface import Call, attention_as, check_calls
from attnlimit.models.spend.assign import (
    Samplers,
    Table,
    grouped_by_sampler,
    sampler_table,
    shape_of,
)
from attnlimit.models.spend.evict.cutter import Cutter, cache_bytes
from attnlimit.models.spend.evict.rule import Eviction
from attnlimit.montecarlo.sampled import generator_of
from attnlimit.samplers import Sampler


@dataclass
class Spent:
    """What a thinned model has read so far; all heads and queries together."""

    queries: int = 0  # of all heads
    read: int = 0  # keys read
    visible: int = 0  # keys that dense attention reads
    cache_bytes: int = 0  # held by the cache that was cut last
    dense_bytes: int = 0  # that all its keys and values would take

    @property
    def mean_keys(self) -> float:
        """Keys read by a query of a head, on average."""
        return self.read / max(1, self.queries)

    @property
    def mean_visible(self) -> float:
        """Keys that a query of a head sees, on average."""
        return self.visible / max(1, self.queries)

    def __str__(self) -> str:
        said = f"{self.mean_keys:.1f} of {self.mean_visible:.1f} keys read by each query"
        if not self.dense_bytes:
            return said
        return f"{said}; cache of {self.cache_bytes / 1e6:.2f} of {self.dense_bytes / 1e6:.2f} MB"


@contextmanager
def spend(
    model: Any,
    samplers: Samplers | Eviction,
    *,
    evict: Eviction | None = None,
    seed: int = 0,
) -> Iterator[Spent]:
    """Make a model's attention read only sampled keys inside the `with` block, or keep only some.

    Forward passes and `model.generate` both work: with a cache, in batches, with padding. What a
    sequence draws depends on the seed and on how many passes ran before in the block, not on the
    other sequences of its batch.

    Parameters
    ----------
    model : LoadedModel or transformers model
    samplers : Sampler, mapping or plan
        Every query of every head draws for itself, among the keys it sees. Or a mapping from
        (layer, head) to samplers, or a plan that has one; heads that are not in it stay dense.
        Or an `Evict`, when keys are dropped from the cache and all that are left are read.
    evict : Evict, optional
        Drop keys from the cache for good, beside the samplers that choose among those left.

    Yields
    ------
    Spent
        How many keys were read, so far, and how much memory a cut cache holds.
    """
    network, _ = unwrap(model)
    if isinstance(samplers, Eviction):
        if evict is not None:
            raise BadInput("There are two rules for the cache; give one Evict.")
        rule: Eviction | None = samplers
        table = _everything(network)
    else:
        rule, table = evict, sampler_table(network, samplers)
    root = checks.count(seed, "seed", smallest=0)
    spent = Spent()
    cutter = None if rule is None else Cutter(network, rule)

    def attention(call: Call) -> Tensor:
        if cutter is not None:
            cutter.watch(call)
        number = (session.calls - 1) // len(table)  # of the forward pass
        chance = np.random.SeedSequence([root, number, call.layer])
        return attend_sampled(call, table[call.layer], generator_of(chance), spent)

    with attention_as(network, attention) as session, _cutting(network, cutter, spent, root):
        yield spent
    passes, left = divmod(session.calls, len(table))
    check_calls(network, len(table) if passes and not left else session.calls)


def _visible(call: Call) -> int:
    """Keys that the queries of all heads see."""
    heads = call.query.shape[1]
    seen = call.mask.visible(call.places()).sum(0)  # queries that see each key
    if call.added is None:
        return int(seen.sum()) * heads
    return int((grouped(call.added[0], heads) > -torch.inf).long().matmul(seen).sum())


def _everything(network: Any) -> Table:
    """A table in which every head reads all its keys."""
    layers, heads = shape_of(network)
    return [[None] * heads for _ in range(layers)]


@contextmanager
def _cutting(network: Any, cutter: Cutter | None, spent: Spent, root: int) -> Iterator[None]:
    """Cut the cache after every pass of the model, if there is something to cut it."""
    if cutter is None:
        yield
        return

    passes = count()

    def after_pass(module: Any, inputs: Any, output: Any) -> None:
        cache = getattr(output, "past_key_values", None)
        cutter.after_pass(cache, (root, next(passes)))
        if cache is not None:
            spent.cache_bytes, spent.dense_bytes = cache_bytes(cache)

    hook = network.base_model.register_forward_hook(after_pass)
    try:
        yield
    finally:
        hook.remove()


def attend_sampled(
    call: Call,
    samplers: Sequence[Sampler | None],
    generator: torch.Generator,
    spent: Spent | None = None,
) -> Tensor:
    """Outputs (1, H, n, d_v) of a layer whose heads read sampled keys, or all where None is."""
    heads, length = call.query.shape[1:3]
    tally = Spent() if spent is None else spent
    if all(sampler is None for sampler in samplers):
        seen = _visible(call)
        tally.read, tally.visible = tally.read + seen, tally.visible + seen
        tally.queries += heads * length
        return attend_dense(call)
    groups = grouped_by_sampler(enumerate(samplers))
    values = grouped(call.value[0], heads)
    step = max(1, BLOCK_SCORES // (heads * call.key.shape[2]))
    outputs = []
    for start in range(0, length, step):
        rows = slice(start, start + step)
        products = call_products(call, rows)
        scores = call_scores(call, rows)
        tally.queries += scores.shape[0] * scores.shape[1]
        tally.visible += int((scores > -torch.inf).sum())
        for sampler, members in groups:
            own = scores[members]
            chosen = sampler.seeing(products.of(members))
            scores[members] = own + chosen.draw(own, call.places(rows), generator)
        tally.read += int((scores > -torch.inf).sum())
        outputs.append(torch.softmax(scores, -1) @ values)
    return torch.cat(outputs, dim=1)[None]
