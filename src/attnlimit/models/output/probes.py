"""How does the output feel each head's output? Gradients of random scalars, layer by layer.

One forward pass keeps every layer's attention output in the graph; one backward pass from a scalar
is one probe. A layer's gradients are handed on when the last of a group of probes reaches it, so
that memory is that of one pass and of a few gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

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


class Receiver(Protocol):
    """What becomes of the layers and of their gradients, as they come."""

    def see(self, call: Call) -> None:
        """Take a layer of the forward pass, in the model's own precision."""

    def begin(self, probed: Probed) -> None:
        """Know what the forward pass gave."""

    def feel(self, call: Call, number: int, gradient: Tensor) -> None:
        """Take the gradient (H, N, d_v) of one probe at a layer's outputs."""


def probe(
    network: Any, encoded: Encoded, target: Target, probes: int, seed: int, reduce: Reduce
) -> Probed:
    """Run one forward pass and `probes` backward ones, and `reduce` every layer's gradients."""
    return run_probes(network, encoded, target, probes, seed, _Grouped(probes, reduce))


def run_probes(
    network: Any, encoded: Encoded, target: Target, probes: int, seed: int, receiver: Receiver
) -> Probed:
    """Run one forward pass and `probes` backward ones; the receiver takes what comes."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.zeros((), requires_grad=True)
    number = 0

    def attention(call: Call) -> Tensor:
        exact = call.precise()
        output = attend_dense(exact) + root.to(exact.query.dtype)
        held = replace(
            call, query=call.query.detach(), key=call.key.detach(), value=call.value.detach()
        )
        receiver.see(held)
        output.register_hook(lambda gradient: receiver.feel(held, number, gradient[0].detach()))
        return output

    with _frozen(network), torch.inference_mode(False), torch.enable_grad():
        with attention_as(network, attention, precise=False) as session:
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
        size = target.scale(read), target.limit(read)
        found = Probed(*size, len(outputs.hidden), read.detach())
        receiver.begin(found)
        for number, scalar in enumerate(target.probes(read, probes, generator)):
            torch.autograd.grad(scalar, root, retain_graph=number + 1 < probes)
    return found


class _Grouped:
    """Hands on the gradients of a group of probes at a layer, when the last has reached it."""

    def __init__(self, probes: int, reduce: Reduce) -> None:
        self.groups, self.reduce = list(groups_of(probes)), reduce
        self.gathered: dict[int, list[Tensor]] = {}

    def see(self, call: Call) -> None:
        """Wait for its gradients."""

    def begin(self, probed: Probed) -> None:
        """Wait for the first gradients."""

    def feel(self, call: Call, number: int, gradient: Tensor) -> None:
        """Keep a gradient, until its group is whole."""
        group = self.groups[number // GROUP]
        found = self.gathered.setdefault(call.layer, [])
        found.append(gradient)
        if number + 1 == group.stop:
            self.reduce(call.settled(), torch.stack(self.gathered.pop(call.layer)), group)


def groups_of(probes: int) -> Iterator[slice]:
    """Probes whose gradients are held, and summed over, together."""
    for start in range(0, probes, GROUP):
        yield slice(start, min(start + GROUP, probes))


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
