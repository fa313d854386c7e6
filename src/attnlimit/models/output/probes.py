"""How does the output feel each head's output? Gradients of random scalars, layer by layer.

One forward pass keeps every layer's attention output in the graph; one backward pass from a scalar
is one probe. A layer's gradients are handed on when the last of a group of probes reaches it, so
that memory is that of one pass and of a few gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import Encoded
from attnlimit.models.capture.interface import Call, attention_as, check_calls
from attnlimit.models.output.target import Target
from attnlimit.models.spend.outputs import run

GROUP = 8
"""Probes whose gradients are held at a time."""

Reduce = Callable[[Call, Tensor, slice], None]
"""Takes a layer's call, gradients (K, H, N, d_v) at its outputs, and which probes they are."""


@dataclass(frozen=True, eq=False)
class Probed:
    """What a pass with probes gave."""

    scale: float  # of E <g, e>^2
    limit: float  # of second order
    tokens: int
    read: Tensor  # what the target takes from the dense model's output


def probe(
    network: Any, encoded: Encoded, target: Target, probes: int, seed: int, reduce: Reduce
) -> Probed:
    """Run one forward pass and `probes` backward ones, and `reduce` every layer's gradients."""
    generator = torch.Generator().manual_seed(seed)
    gathered: dict[int, list[Tensor]] = {}
    group = slice(0, 0)
    root = torch.zeros((), requires_grad=True)

    def attention(call: Call) -> Tensor:
        output = attend_dense(call) + root.to(call.query.dtype)
        held = replace(
            call, query=call.query.detach(), key=call.key.detach(), value=call.value.detach()
        )
        output.register_hook(lambda gradient: gather(held, gradient))
        return output

    def gather(call: Call, gradient: Tensor) -> None:
        found = gathered.setdefault(call.layer, [])
        found.append(gradient[0].detach())
        if len(found) == group.stop - group.start:
            reduce(call, torch.stack(gathered.pop(call.layer)), group)

    with _frozen(network), torch.inference_mode(False), torch.enable_grad():
        with attention_as(network, attention) as session:
            outputs = run(network, encoded)
        check_calls(network, session.calls)
        read = target.read(outputs)
        if not read.requires_grad:
            raise BadInput(
                f"No gradient reaches the output of {type(network).__name__}: load the model in "
                "float32, not quantised, or give an output function that is differentiable."
            )
        if not torch.isfinite(read).all():
            raise BadInput("The model's output contains NaN or infinite numbers on this text.")
        for number, scalar in enumerate(target.probes(read, probes, generator)):
            if number % GROUP == 0:
                group = slice(number, min(number + GROUP, probes))
            torch.autograd.grad(scalar, root, retain_graph=number + 1 < probes)
    return Probed(target.scale(read), target.limit(read), len(outputs.hidden), read.detach())


@contextmanager
def _frozen(network: Any) -> Iterator[None]:
    """Leave the weights out of the graph: only attention outputs are differentiated."""
    before = [(weight, weight.requires_grad) for weight in network.parameters()]
    try:
        for weight, _ in before:
            weight.requires_grad_(False)
        yield
    finally:
        for weight, was in before:
            weight.requires_grad_(was)
