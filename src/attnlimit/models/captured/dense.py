"""Dense attention of a layer in blocks, and one pass of a model that captures its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.errors import BadInput
from attnlimit.models.captured.captured import (
    CapturedLayer,
    Mask,
    masked_scores,
    precise,
    row_blocks,
)
from attnlimit.models.captured.encode import Encoded, unwrap
from attnlimit.models.captured.interface import Call, attention_as, check_calls
from attnlimit.samplers import Products

BLOCK_SCORES = 1 << 24
"""Scores of a layer held at a time, all heads together."""


def attend_dense(call: Call) -> Tensor:
    """Outputs (1, H, n, d_v) of a layer, as the model itself computes them."""
    plain = call.softcap is None and call.position_bias is None and call.added is None
    plain = plain and call.mask.window is None
    last = call.query.shape[2] == 1 and call.offset == call.key.shape[2] - 1
    if plain and (call.mask.full or call.whole or last):
        return scaled_dot_product_attention(
            call.query,
            call.key,
            call.value,
            is_causal=call.mask.causal and call.whole,
            scale=call.scale,
            enable_gqa=call.query.shape[1] != call.key.shape[1],
        )
    exact = call.precise()
    heads, length = exact.query.shape[1:3]
    values = grouped(exact.value[0], heads)
    blocks = row_blocks(length, heads * exact.key.shape[2], BLOCK_SCORES)
    outputs = torch.cat(
        [torch.softmax(call_products(exact, rows).exact(), -1) @ values for rows in blocks], dim=1
    )
    return outputs[None].to(call.query)


def grouped(tensor: Tensor, heads: int) -> Tensor:
    """Keys or values (H_kv, n, d) as each of `heads` query heads sees them; a view when equal."""
    return tensor.repeat_interleave(heads // len(tensor), dim=0)


def call_products(call: Call, rows: slice) -> Products:
    """Queries and keys of a block, all heads: what samplers that look at them are given."""
    keys = grouped(call.key[0], call.query.shape[1])
    return Products(call.scale * call.query[0, :, rows], keys, partial(_of_products, call, rows))


def _of_products(call: Call, rows: slice, scores: Tensor) -> Tensor:
    bias = None if call.position_bias is None else call.position_bias[0, :, rows]
    if call.added is not None:
        of_keys = grouped(call.added[0], call.query.shape[1])[:, None]
        bias = of_keys if bias is None else bias + of_keys
    return masked_scores(scores, call.softcap, bias, call.mask.visible(call.places(rows)))


Keep = Callable[[int, CapturedLayer], None]
"""Takes a layer's number and its tensors, which are the model's own and soon gone."""


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
        if network.config.model_type == "big_bird":
            _run_big_bird(base, encoded, wanted, keep)
            return
        with attention_as(network, attention, precise=False) as session:
            base(**encoded.inputs, **options)
        check_calls(network, session.calls)


def _run_big_bird(base: Any, encoded: Encoded, wanted: Sequence[int], keep: Keep) -> None:
    """Capture BigBird, which computes its own attention, through hooks on its projections.

    BigBird's block-sparse attention is itself a scheme of keeping some keys; the head captured is
    the full one that it approximates, so the model runs with `original_full` attention.
    """
    names = ("query", "key", "value")
    projected: dict[tuple[int, str], Tensor] = {}

    def hook(place: tuple[int, str], module: Any, inputs: Any, output: Tensor) -> None:
        projected[place] = output.detach()

    handles = [
        getattr(layer.attention.self, name).register_forward_hook(partial(hook, (number, name)))
        for number, layer in enumerate(base.encoder.layer)
        for name in names
    ]
    before = base.attention_type
    try:
        base.set_attention_type("original_full")
        base(**encoded.inputs)
    finally:
        base.set_attention_type(before)
        for handle in handles:
            handle.remove()
    depth = len(base.encoder.layer)
    if len(projected) != 3 * depth:
        raise BadInput(
            f"BigBird used {len(projected) // 3} of its {depth} layers' projections; set "
            "attention_type='original_full'."
        )
    heads = base.config.num_attention_heads
    places = torch.arange(next(iter(projected.values())).shape[1])
    places = places if encoded.keep is None else places[encoded.keep]
    for number in wanted:
        split = (projected.pop((number, n))[0].cpu().unflatten(-1, (heads, -1)) for n in names)
        q, k, v = (tensor.transpose(0, 1)[:, places] for tensor in split)
        keep(number, CapturedLayer.checked(number, q, k, v, Mask(places), q.shape[-1] ** -0.5))


def layer_of(call: Call) -> CapturedLayer:
    """Return what a call of a whole sequence shows of its layer."""
    tensors = call.query[0], call.key[0], call.value[0]
    bias = None if call.position_bias is None else distance_bias(call.position_bias)
    return CapturedLayer.checked(call.layer, *tensors, call.mask, call.scale, call.softcap, bias)


def call_of(number: int, layer: CapturedLayer) -> Call:
    """Return the call that showed a layer, in single precision or better: `layer_of` undone."""
    query, key, value = (precise(tensor)[None] for tensor in (layer.q, layer.k, layer.v))
    bias = None
    if layer.bias is not None:
        place, middle = layer.mask.positions, (layer.bias.shape[1] - 1) // 2
        bias = precise(layer.bias)[:, place[None, :] - place[:, None] + middle][None]
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
                "it cannot be captured; give q, k and v to from_arrays."
            )
    return by_distance.clone()
