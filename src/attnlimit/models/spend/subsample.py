"""What does thinning attention do to a model's output? Run it with each query seeing n keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import BLOCK_SCORES, attend_dense, call_scores, grouped
from attnlimit.models.capture.encode import unwrap
from attnlimit.models.capture.interface import Call, attention_as, check_calls
from attnlimit.montecarlo.sampled import generator_of
from attnlimit.samplers import Sampler
from attnlimit.samplers.base import check_sampler


@contextmanager
def subsampled(
    model: Any,
    sampler: Sampler | Mapping[tuple[int, int], Sampler],
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
    sampler : Sampler or mapping
        Every query of every head draws for itself, among the keys it sees. Or a mapping from
        (layer, head) to samplers, such as `Plan.samplers()`; heads that are not in it stay dense.
    layers : sequence of int, optional
        Layers that are thinned; all by default.
    keep : (n,) boolean tensor, optional
        Tokens that are not padding.
    """
    for one in sampler.values() if isinstance(sampler, Mapping) else [sampler]:
        check_sampler(one)
    network, _ = unwrap(model)
    depth = int(network.config.num_hidden_layers)
    thinned = _chosen(layers, depth)
    heads = int(network.config.num_attention_heads)
    generator = generator_of(checks.count(seed, "seed", smallest=0))

    def sampler_of(layer: int, head: int) -> Sampler | None:
        return sampler.get((layer, head)) if isinstance(sampler, Mapping) else sampler

    def attention(call: Call) -> Tensor:
        if call.layer % depth not in thinned:
            return attend_dense(call)
        layer = call.layer % depth
        return attend_sampled(call, [sampler_of(layer, head) for head in range(heads)], generator)

    with attention_as(network, attention, keep) as session:
        yield
    passes, left = divmod(session.calls, depth)
    check_calls(network, depth if passes and not left else session.calls)


def attend_sampled(
    call: Call, samplers: Sequence[Sampler | None], generator: torch.Generator
) -> Tensor:
    """Outputs (1, H, N, d_v) of a layer whose heads see sampled keys, or all where None is."""
    groups: dict[Sampler | None, list[int]] = {}
    for head, sampler in enumerate(samplers):
        groups.setdefault(sampler, []).append(head)

    def weigh(scores: Tensor, rows: Tensor) -> Tensor:
        for sampler, heads in groups.items():
            if sampler is not None:
                seen = scores[heads]
                scores[heads] = seen + sampler.draw(seen, rows, generator)
        return torch.softmax(scores, -1)

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


def _chosen(layers: Iterable[int] | None, depth: int) -> set[int]:
    if layers is None:
        return set(range(depth))
    numbers = [checks.count(layer, "layers", smallest=-depth) for layer in layers]
    if not numbers or any(layer >= depth for layer in numbers):
        raise BadInput(f"layers must name some of 0 to {depth - 1}, got {numbers}.")
    return {layer % depth for layer in numbers}
