"""How does a model run on fewer keys? Each query of each head draws its own, cache or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import call_products, grouped
from attnlimit.models.capture.encode import unwrap
from attnlimit.models.capture.interface import Call, attention_as, check_calls
from attnlimit.models.spend.assign import (
    HasSensitivity,
    Samplers,
    Table,
    grouped_by_sampler,
    sampler_table,
    shape_of,
)
from attnlimit.models.spend.evict.cutter import Cutter, cache_bytes
from attnlimit.models.spend.evict.rule import Eviction
from attnlimit.models.spend.spent import Spent, Step, nats_of, squared_errors
from attnlimit.models.spend.traffic import Widths, moved_bytes
from attnlimit.montecarlo.sampled import generator_of
from attnlimit.samplers import Sampler

BLOCK_SCORES = 1 << 20
"""Scores held at a time by a layer, in about eight copies: less than a layer's at 1000 tokens."""


@contextmanager
def spend(
    model: Any,
    samplers: Samplers | Eviction,
    *,
    evict: Eviction | None = None,
    seed: int = 0,
    limit: float | None = None,
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
    limit : float, optional
        Nats that a token may lose by first order, with a plan that was made for KL. A layer that
        would take a token past it reads all keys for that token.

    Yields
    ------
    Spent
        How many keys were read and how wrong that is, so far, and how much memory a cut cache
        holds.
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
    sensitivity = samplers.sensitivity if isinstance(samplers, HasSensitivity) else None
    spent = Spent(sensitivity)
    allowed = _Allowed(_checked_limit(limit, sensitivity))
    cutter = None if rule is None else Cutter(network, rule)

    def attention(call: Call) -> Tensor:
        if cutter is not None:
            cutter.watch(call)
        number = (session.calls - 1) // len(table)  # of the forward pass
        chance = np.random.SeedSequence([root, number, call.layer])
        left = allowed.of(number, call)
        return attend_sampled(
            call, table[call.layer], generator_of(chance), spent, number=number, left=left
        )

    with attention_as(network, attention) as session, _cutting(network, cutter, spent, root):
        yield spent
    passes, left = divmod(session.calls, len(table))
    check_calls(network, len(table) if passes and not left else session.calls)


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
    spent: Spent,
    *,
    number: int = 0,
    left: Tensor | None = None,
) -> Tensor:
    """Outputs (1, H, n, d_v) of a layer whose heads read sampled keys, or all where None is.

    `number` is that of the pass. `left` (n,) are the nats that each query may still lose: those
    that this layer would take past it are dense, and what the others lose is taken off.
    """
    heads, length = call.query.shape[1:3]
    chosen = grouped_by_sampler(enumerate(samplers))
    step = spent.steps.setdefault((number, call.layer), Step())
    step.tokens += length
    step.unknown |= any(s.draws != "independent" or not s.weighted for s, _ in chosen)
    groups, widths = call.key.shape[1], Widths.of(call)
    whole_keys = any(sampler.asks_keys for sampler, _ in chosen)
    size = max(1, BLOCK_SCORES // (heads * call.key.shape[2]))
    outputs = []
    for start in range(0, length, size):
        rows = slice(start, start + size)
        block = call if whole_keys else call.up_to(rows)
        products, values = call_products(block, rows), grouped(block.value[0], heads)
        scores = products.exact()
        added = torch.zeros_like(scores)
        for sampler, members in chosen:
            seeing = sampler.seeing(products.of(members))
            added[members] = seeing.draw(scores[members], call.places(rows), generator)
        weights = torch.softmax(scores + added, -1)
        output = weights @ values
        # What is added to a kept key is -log of its chance.
        left_out = -torch.expm1(-added.clamp_min(0.0))
        squares = (
            squared_errors(weights, left_out, values, output)
            if chosen
            else output.new_zeros(output.shape[:2])
        )
        nats = nats_of(squares, spent.sensitivity, call.layer)
        if left is not None:
            past = nats > left[rows]
            output[:, past] = torch.softmax(scores[:, past], -1) @ values
            added[:, past], squares[:, past], nats[past] = 0.0, 0.0, 0.0
            left[rows] -= nats
            step.dense += int(past.sum())
        step.queries += scores.shape[0] * scores.shape[1]
        step.visible += int((scores > -torch.inf).sum())
        kept = scores + added > -torch.inf
        step.read += int(kept.sum())
        seen, shared = (
            some.unflatten(0, (groups, -1)).any(1).sum((1, 2)).numpy()
            for some in (scores > -torch.inf, kept)
        )
        step.bytes += float(moved_bytes(samplers, shared, seen, widths).sum())
        step.visible_bytes += float(seen.sum()) * widths.both
        step.nats += float(nats.double().sum())
        whole = output.square().sum(-1).clamp_min(torch.finfo(output.dtype).tiny)
        step.relative += float((squares / whole).double().sum())
        for sums, more in ((spent.squares, squares.double().sum(-1)), (spent.shared, shared)):
            for head, number in enumerate(more.tolist()):
                sums[call.layer, head] = sums.get((call.layer, head), 0.0) + number
        outputs.append(output)
    return torch.cat(outputs, dim=1)[None]


class _Allowed:
    """Nats that every query of every sequence may still lose in a pass."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.number = -1
        self.layers: dict[int, int] = {}  # sequences of the pass seen by each layer
        self.rows: dict[int, Tensor] = {}  # by sequence

    def of(self, number: int, call: Call) -> Tensor | None:
        """What is left for the queries of this call, to be changed by who takes of it."""
        if self.limit is None:
            return None
        if number != self.number:
            self.number, self.layers, self.rows = number, {}, {}
        row = self.layers[call.layer] = self.layers.get(call.layer, -1) + 1
        return self.rows.setdefault(row, torch.full((call.query.shape[2],), self.limit))


def _checked_limit(limit: float | None, sensitivity: Array | None) -> float | None:
    if limit is None:
        return None
    if sensitivity is None:
        raise BadInput(
            "limit is in nats, which only a plan for KL knows how to count: give the plan of "
            "plan_output(model, texts, kl=...), by a sampler that keeps keys by chance."
        )
    return checks.positive(limit, "limit")
