"""How much does each token move a head's mean output? Its influence psi, in two blocked passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.captured import Capture, CapturedHead, CapturedLayer
from attnlimit.models.dense import BLOCK_SCORES, grouped


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

    @property
    def size(self) -> Tensor:
        """|psi_j|, (H, N)."""
        return self.psi.norm(dim=-1)

    @property
    def variance(self) -> Tensor:
        """Trace of Cov psi for each head: n times the delta method's E|m_n - m|^2."""
        return self.psi.double().square().sum(-1).mean(-1)


def layer_influence(layer: CapturedLayer, heads: list[int] | None = None) -> LayerInfluence:
    """Influence of every token in every head of a layer, holding a block of attention at a time."""
    chosen = list(range(len(layer.q))) if heads is None else heads
    captured = [layer.head(0, head) for head in chosen]
    size = len(captured[0])
    together = max(1, BLOCK_SCORES // (size * size))
    parts = [
        _influence(captured[start : start + together])
        for start in range(0, len(captured), together)
    ]
    return LayerInfluence(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _influence(heads: list[CapturedHead]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """psi, attention received, participation and outputs of some heads at once."""
    size = len(heads[0])
    values = torch.stack([head.v for head in heads])
    step = max(1, BLOCK_SCORES // (size * len(heads)))
    received = torch.zeros(len(heads), size)
    back = torch.zeros_like(values)
    outputs, participation = [], []
    for start in range(0, size, step):
        rows = slice(start, start + step)
        weights = torch.softmax(torch.stack([head.scores(rows) for head in heads]), dim=-1)
        output = weights @ values
        received += weights.sum(1)
        back += weights.transpose(1, 2) @ output
        outputs.append(output)
        participation.append(weights.square_().sum(-1))
    output = torch.cat(outputs, dim=1)
    psi = output - output.mean(1, keepdim=True) + received[..., None] * values - back
    return psi, received, torch.cat(participation, dim=1), output


def influence(capture: Capture, layer: int, head: int | None = None) -> Array:
    """Influence |psi_j| of every token on a head's mean output, or on the whole layer's.

    The layer's is the length of the concatenated psi of its heads.
    """
    number = capture.check_layer(layer)
    heads = None if head is None else [capture.check_head(head)]
    sizes = layer_influence(capture.layers[number], heads).size
    return sizes.square().sum(0).sqrt().double().numpy()


def layer_outputs(layer: CapturedLayer) -> Tensor:
    """Outputs (H, N, d_v) of every head of a layer, without holding N x N."""
    return torch.stack([layer.head(0, head).output() for head in range(len(layer.q))])


def values_of(layer: CapturedLayer) -> Tensor:
    """Values (H, N, d_v) as each query head sees them."""
    return grouped(layer.v, len(layer.q))
