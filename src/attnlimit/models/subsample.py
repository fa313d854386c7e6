"""What does thinning attention do to a model's output? Run it with each query seeing n keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.dense import BLOCK_SCORES, attend_dense, call_scores, grouped
from attnlimit.models.encode import unwrap
from attnlimit.models.interface import Call, attention_as, check_calls
from attnlimit.models.schemes import scheme_of
from attnlimit.montecarlo.samplers import Iid, WithoutReplacement


@contextmanager
def subsampled(
    model: Any,
    sampler: Any,
    n: int | None = None,
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    keep: Tensor | None = None,
) -> Iterator[None]:
    """Make a model's attention see only sampled keys inside the `with` block.

    Parameters
    ----------
    model : LoadedModel or transformers model
        Run on one sequence at a time.
    sampler : al.Iid(), al.WithoutReplacement(), al.Window(...), al.TopK(...), al.Keep(...), ...
        Every query of every head draws for itself, among the keys it sees. Or a mapping from
        (layer, head) to a sampler and its n, such as `Plan.samplers()`; heads that are not in it
        stay dense.
    n : int, optional
        Keys for `Iid` and `WithoutReplacement`; the other samplers have their own sizes.
    layers : sequence of int, optional
        Layers that are thinned; all by default.
    keep : (n,) boolean tensor, optional
        Tokens that are not padding.
    """
    network, _ = unwrap(model)
    depth = int(network.config.num_hidden_layers)
    thinned = _chosen(layers, depth)
    planned = isinstance(sampler, Mapping)
    if planned:
        for one, size in sampler.values():
            _size(one, size)
    sizes = None if planned else _size(sampler, n)
    generator = torch.Generator().manual_seed(
        int(np.random.SeedSequence(checks.count(seed, "seed", smallest=0)).generate_state(1)[0])
    )

    def attention(call: Call) -> Tensor:
        if call.layer % depth not in thinned:
            return attend_dense(call)
        if planned:
            return attend_planned(call, sampler, call.layer % depth, generator)
        return attend_sampled(call, sampler, sizes, generator)

    with attention_as(network, attention, keep) as session:
        yield
    passes, left = divmod(session.calls, depth)
    check_calls(network, depth if passes and not left else session.calls)


def attend_sampled(call: Call, sampler: Any, n: int | None, generator: torch.Generator) -> Tensor:
    """Outputs (1, H, N, d_v) of a layer whose queries see sampled keys only."""
    return _attend(call, lambda scores, rows: _thinned(scores, rows, sampler, n, generator))


def attend_planned(
    call: Call,
    samplers: Mapping[tuple[int, int], tuple[Any, int | None]],
    layer: int,
    generator: torch.Generator,
) -> Tensor:
    """Outputs (1, H, N, d_v) of a layer whose heads have a sampler each, or none."""

    def weigh(scores: Tensor, rows: Tensor) -> Tensor:
        weights = torch.softmax(scores, -1)
        for head in range(len(scores)):
            if (layer, head) in samplers:
                one, n = samplers[layer, head]
                weights[head] = _thinned(scores[head : head + 1], rows, one, n, generator)[0]
        return weights

    return _attend(call, weigh)


def _attend(call: Call, weigh: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Outputs of a layer, a block of queries at a time, with weights from `weigh(scores, rows)`."""
    heads, length = call.query.shape[1:3]
    values = grouped(call.value[0], heads)
    step = max(1, BLOCK_SCORES // (heads * length))
    outputs = []
    for start in range(0, length, step):
        rows = torch.arange(start, min(start + step, length))
        scores = call_scores(call, slice(start, start + step))
        outputs.append(weigh(scores, rows) @ values)
    return torch.cat(outputs, dim=1)[None]


def _thinned(
    scores: Tensor, rows: Tensor, sampler: Any, n: int | None, generator: torch.Generator
) -> Tensor:
    """Attention weights (H, rows, N) over sampled keys."""
    visible = scores > -torch.inf
    if isinstance(sampler, Iid):
        assert n is not None
        counts = visible.sum(-1, keepdim=True)
        order = torch.argsort(visible[0].int(), dim=-1, descending=True, stable=True)
        uniform = torch.rand(*scores.shape[:-1], n, generator=generator)
        place = (uniform * counts).long().clamp_max(scores.shape[-1] - 1)
        picks = order.expand(scores.shape).gather(-1, place)
        drawn = torch.zeros_like(scores).scatter_add_(-1, picks, torch.ones_like(uniform))
        return torch.softmax(scores + torch.log(drawn), -1)
    if isinstance(sampler, WithoutReplacement):
        assert n is not None
        ranks = torch.rand(scores.shape, generator=generator).masked_fill_(~visible, 2.0)
        size = min(n, scores.shape[-1])
        edge = ranks.kthvalue(size, dim=-1, keepdim=True).values
        return torch.softmax(scores.masked_fill((ranks > edge) | ~visible, -torch.inf), -1)
    scheme = scheme_of(sampler)
    chance = scheme.probabilities(scores, rows)
    kept = torch.rand(scores.shape, generator=generator) < chance
    # With nothing sampled at all, the query falls back on its best key.
    empty = ~kept.any(-1, keepdim=True)
    kept |= empty & (scores == scores.amax(-1, keepdim=True))
    cost = scores - torch.log(chance) if scheme.weighted else scores
    return torch.softmax(cost.masked_fill(~kept, -torch.inf), -1)


def _size(sampler: Any, n: int | None) -> int | None:
    if isinstance(sampler, (Iid, WithoutReplacement)):
        if n is None:
            raise BadInput(f"{sampler!r} needs n, how many keys each query draws.")
        return checks.count(n, "n", smallest=1)
    scheme_of(sampler)
    return None


def _chosen(layers: Iterable[int] | None, depth: int) -> set[int]:
    if layers is None:
        return set(range(depth))
    numbers = [checks.count(layer, "layers", smallest=-depth) for layer in layers]
    if not numbers or any(layer >= depth for layer in numbers):
        raise BadInput(f"layers must name some of 0 to {depth - 1}, got {numbers}.")
    return {layer % depth for layer in numbers}
