"""What does a layer's attention give over all its keys? In blocks, never an n x n matrix."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.models.capture.interface import Call
from attnlimit.samplers.products import Products

BLOCK_SCORES = 1 << 24
"""Scores held at a time by a layer, all heads together."""


def attend_dense(call: Call) -> Tensor:
    """Outputs (1, H, n, d_v) of a layer, as the model itself computes them."""
    plain = call.softcap is None and call.position_bias is None and call.added is None
    plain = plain and call.mask.fused
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
    step = max(1, BLOCK_SCORES // (heads * exact.key.shape[2]))
    values = grouped(exact.value[0], heads)
    blocks = (call_scores(exact, slice(i, i + step)) for i in range(0, length, step))
    outputs = torch.cat([torch.softmax(scores, -1) @ values for scores in blocks], dim=1)
    return outputs[None].to(call.query)


def grouped(tensor: Tensor, heads: int) -> Tensor:
    """Keys or values (H_kv, n, d) as each of `heads` query heads sees them; a view when equal."""
    return tensor.repeat_interleave(heads // len(tensor), dim=0)


def call_scores(call: Call, rows: slice) -> Tensor:
    """Scores (H, rows, n) of a block of queries, -inf where a key is not visible."""
    return call_products(call, rows).exact()


def call_products(call: Call, rows: slice) -> Products:
    """Queries and keys of a block, all heads: what samplers that look at them are given."""
    keys = grouped(call.key[0], call.query.shape[1])
    return Products(call.scale * call.query[0, :, rows], keys, partial(_of_products, call, rows))


def _of_products(call: Call, rows: slice, scores: Tensor) -> Tensor:
    """Scores from products of scaled queries and keys: capped, by places, where visible."""
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if call.position_bias is not None:
        scores = scores + call.position_bias[0, :, rows]
    if call.added is not None:
        scores = scores + grouped(call.added[0], call.query.shape[1])[:, None]
    visible = call.mask.visible(call.places(rows))
    return scores.masked_fill(~visible, -torch.inf)
