"""How is a model captured that computes its own attention? From its projections (BigBird)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import CapturedLayer
from attnlimit.models.capture.encode import Encoded
from attnlimit.models.capture.masks import Mask

NAMES = ("query", "key", "value")


def needs_projections(network: Any) -> bool:
    """Whether the model is one whose attention is known to be query, key, value and no more."""
    return bool(network.config.model_type == "big_bird")


def capture_projections(
    base: Any,
    encoded: Encoded,
    wanted: Sequence[int],
    keep: Callable[[int, CapturedLayer], None],
) -> None:
    """Capture BigBird through hooks on its projections, with its full attention.

    BigBird's block-sparse attention is itself a scheme of keeping some keys; the head captured is
    the full one that it approximates, so the model runs with `original_full` attention.
    """
    found: dict[tuple[int, str], Tensor] = {}
    handles = []
    for number, layer in enumerate(base.encoder.layer):
        for name in NAMES:
            projection = getattr(layer.attention.self, name)
            handles.append(projection.register_forward_hook(_keep(found, number, name)))
    before = base.attention_type
    try:
        base.set_attention_type("original_full")
        base(**encoded.inputs)
    finally:
        base.set_attention_type(before)
        for handle in handles:
            handle.remove()
    depth = len(base.encoder.layer)
    if len(found) != 3 * depth:
        raise BadInput(f"BigBird used {len(found) // 3} of its {depth} layers' projections.")
    heads = base.config.num_attention_heads
    positions = torch.arange(next(iter(found.values())).shape[1])
    places = positions if encoded.keep is None else positions[encoded.keep]
    mask = Mask(places)
    for number in wanted:
        split = (found.pop((number, name))[0].cpu().unflatten(-1, (heads, -1)) for name in NAMES)
        q, k, v = (tensor.transpose(0, 1)[:, places] for tensor in split)
        keep(number, CapturedLayer.checked(number, q, k, v, mask, q.shape[-1] ** -0.5))


def _keep(found: dict[tuple[int, str], Tensor], layer: int, name: str) -> Any:
    def hook(module: Any, inputs: Any, output: Tensor) -> None:
        found[layer, name] = output.detach()

    return hook
