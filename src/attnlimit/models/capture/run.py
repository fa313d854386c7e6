"""How are a model's layers seen one after another? In one pass, each handed on as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import CapturedLayer
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import Encoded, unwrap
from attnlimit.models.capture.interface import Call, attention_as, check_calls
from attnlimit.models.capture.projections import capture_projections, needs_projections

Keep = Callable[[int, CapturedLayer], None]
"""Takes a layer's number and its tensors, which are the model's own and soon gone."""


def chosen_layers(depth: int, layers: Sequence[int] | None) -> list[int]:
    """Return the layers asked for, in their order; all of a model's `depth` without a wish."""
    chosen = range(depth) if layers is None else layers
    numbers = [checks.count(layer, "layers", smallest=-depth) for layer in chosen]
    if not numbers or max(numbers) >= depth:
        raise BadInput(f"layers must name some of 0 to {depth - 1}, got {list(chosen)}.")
    return sorted({layer % depth for layer in numbers})


def run_layers(model: Any, encoded: Encoded, wanted: Sequence[int], keep: Keep) -> None:
    """Run a model once over a sequence, and hand every wanted layer to `keep`."""
    network, _ = unwrap(model)

    def attention(call: Call) -> Tensor:
        output = attend_dense(call)
        if call.layer in wanted:
            keep(call.layer, layer_of(call))
        return output

    base = network.base_model
    options = {"use_cache": False} if getattr(network.config, "use_cache", None) else {}
    with torch.no_grad():
        if needs_projections(network):
            capture_projections(base, encoded, wanted, keep)
            return
        with attention_as(network, attention, precise=False) as session:
            base(**encoded.inputs, **options)
        check_calls(network, session.calls)


def layer_of(call: Call) -> CapturedLayer:
    """Return what a call of a whole sequence shows of its layer."""
    tensors = call.query[0], call.key[0], call.value[0]
    bias = None if call.position_bias is None else distance_bias(call.position_bias)
    return CapturedLayer.checked(call.layer, *tensors, call.mask, call.scale, call.softcap, bias)


def call_of(number: int, layer: CapturedLayer) -> Call:
    """Return the call that showed a layer, in single precision or better: `layer_of` undone."""
    heads = [layer.head(number, head) for head in range(len(layer.q))]
    sharing = heads[:: len(heads) // len(layer.k)]  # one for each of the keys
    tensors = [h.q for h in heads], [h.k for h in sharing], [h.v for h in sharing]
    query, key, value = (torch.stack(one)[None] for one in tensors)
    bias = None
    if layer.bias is not None:
        place, middle = layer.mask.positions, (layer.bias.shape[1] - 1) // 2
        apart = place[None, :] - place[:, None] + middle
        bias = torch.stack([h.bias[apart] for h in heads if h.bias is not None])[None]
    return Call(number, query, key, value, layer.mask, layer.scale, layer.softcap, bias)


def distance_bias(position_bias: Tensor) -> Tensor:
    """Compress a (1, H, n, n) position bias that depends on j - i only to (H, 2n-1)."""
    matrix = position_bias[0].cpu()
    length = matrix.shape[-1]
    by_distance = torch.cat([matrix[:, :, 0].flip(1), matrix[:, 0, 1:]], dim=1)
    rows = torch.arange(length)
    for row in {0, length // 3, length // 2, length - 1}:
        if not torch.equal(matrix[:, row], by_distance[:, rows - row + length - 1]):
            raise BadInput(
                "This model's position bias depends on more than the distance between tokens; "
                "it cannot be captured without an N x N matrix."
            )
    return by_distance.clone()
