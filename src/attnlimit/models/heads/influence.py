"""How much does each token move a head's mean output? Its influence psi, in two blocked passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.capture.captured import Captured, CapturedHead, CapturedLayer

BLOCK = 1 << 18
"""Entries of attention at a time: what stays in the processor's cache between passes over them."""


@dataclass(frozen=True, eq=False)
class LayerInfluence:
    """First-order effect of every token on the mean output of each head of a layer.

    With P the attention weights, O = P V the outputs and m their mean,

        psi_j = O_j - m + (sum_i P_ij) V_j - sum_i P_ij O_i,

    and the mean output of n resampled tokens is m + (1/n) sum psi + o(1/sqrt n).
    """

    psi: Tensor  # (H, N, d_v)
    received: Tensor  # (H, N) sum_i P_ij, attention received: the heavy hitters' score
    participation: Tensor  # (H, N) sum_j P_ij^2 of each query
    output: Tensor  # (H, N, d_v)
    saturation: Tensor  # (H, N, d_v) N sum_i P_ij^2 (V_j - O_i), on request
    bias: Tensor  # (H, N, d_v) N sum_j P_ij^2 (O_i - V_j): n times a query's bias, on request

    @property
    def size(self) -> Tensor:
        """|psi_j|, (H, N)."""
        return self.psi.norm(dim=-1)

    @property
    def variance(self) -> Tensor:
        """Trace of Cov psi for each head: n times the delta method's E|m_n - m|^2."""
        return self.psi.double().square().sum(-1).mean(-1)


def layer_influence(
    layer: CapturedLayer, heads: list[int] | None = None, *, second: bool = False
) -> LayerInfluence:
    """Influence of every token in every head of a layer, holding a block of attention at a time.

    `second` also computes the terms of second order, from the same attention.
    """
    chosen = list(range(len(layer.q))) if heads is None else heads
    captured = [layer.head(0, head) for head in chosen]
    together = max(1, BLOCK // len(captured[0]) ** 2)
    parts = [
        _influence(captured[start : start + together], second)
        for start in range(0, len(captured), together)
    ]
    return LayerInfluence(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _influence(heads: list[CapturedHead], second: bool) -> tuple[Tensor, ...]:
    """The fields of `LayerInfluence` for some heads at once."""
    size = len(heads[0])
    values = torch.stack([head.v for head in heads])
    step = max(1, BLOCK // (size * len(heads)))
    received, squared = torch.zeros(len(heads), size), torch.zeros(len(heads), size)
    back, squared_back = torch.zeros_like(values), torch.zeros_like(values)
    outputs, participations, biases = [], [], []
    for start in range(0, size, step):
        rows = slice(start, start + step)
        weights = torch.softmax(torch.stack([head.scores(rows) for head in heads]), dim=-1)
        output = weights @ values
        received += weights.sum(1)
        back += weights.transpose(1, 2) @ output
        weights.square_()
        participation = weights.sum(-1)
        if second:
            squared += weights.sum(1)
            squared_back += weights.transpose(1, 2) @ output
            biases.append(participation[..., None] * output - weights @ values)
        outputs.append(output)
        participations.append(participation)
    output = torch.cat(outputs, dim=1)
    psi = output - output.mean(1, keepdim=True) + received[..., None] * values - back
    saturation = size * (squared[..., None] * values - squared_back)
    bias = size * torch.cat(biases, dim=1) if second else torch.zeros(len(heads), 0)
    return psi, received, torch.cat(participations, dim=1), output, saturation, bias


def influence(capture: Captured, layer: int, head: int | None = None) -> Array:
    """Influence |psi_j| of every token on a head's mean output, or on the whole layer's.

    The layer's is the length of the concatenated psi of its heads.
    """
    number = capture.check_layer(layer)
    heads = None if head is None else [capture.check_head(head)]
    sizes = layer_influence(capture.layers[number], heads).size
    return sizes.square().sum(0).sqrt().double().numpy()
