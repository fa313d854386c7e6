"""How are the inputs of every attention head taken from a model? In one pass, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Captured, CapturedLayer
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import Encoded, encode, encode_windows, unwrap
from attnlimit.models.capture.interface import Call, attention_as, check_calls
from attnlimit.models.capture.projections import capture_projections, needs_projections
from attnlimit.models.heads import curves, horizon, influence, profile


class Capture(Captured):
    """Every head of a model on one text. `cap[layer, head]` gives its q, k, v and mask."""

    horizons = horizon.horizons
    influence = influence.influence
    profile = profile.profile
    predict_curve = curves.predict_capture
    measure_curve = curves.measure_capture


def capture(
    model: Any,
    text: str | Sequence[int] | Tensor | Mapping[str, Tensor],
    *,
    layers: Sequence[int] | None = None,
    special_tokens: bool = True,
    truncate: bool = False,
) -> Capture:
    """Run `model` once on `text` and keep the queries, keys and values of its heads.

    Parameters
    ----------
    model : LoadedModel or transformers model
        From `attnlimit.models.load`, or any transformers model.
    text : str, token ids, or a mapping of input tensors
        What the model reads; a mapping (such as an image's `pixel_values`, or padded ids with
        their `attention_mask`) goes to the model as it is. Padding is left out of the capture.
    layers : sequence of int, optional
        Layers to keep; all by default. Memory grows with the layers kept times tokens.
    special_tokens : bool
        Whether tokens such as [CLS] are added to a text.
    truncate : bool
        Whether a text beyond the model's positions is cut there; otherwise it is refused, and
        `capture_windows` splits it.
    """
    encoded = encode(model, text, special_tokens=special_tokens, truncate=truncate)
    return _run(model, encoded, layers)


def capture_windows(
    model: Any,
    text: str,
    *,
    width: int | None = None,
    overlap: int = 0,
    layers: Sequence[int] | None = None,
    special_tokens: bool = True,
) -> list[Capture]:
    """Capture a text of any length, split into windows; each knows its place in the document.

    `width` is the number of tokens in a window, special ones included (the model's positions by
    default), and `overlap` how many a window shares with the one before it.
    """
    windows = encode_windows(model, text, width, overlap, special_tokens)
    return [_run(model, window, layers) for window in windows]


def _run(model: Any, encoded: Encoded, layers: Sequence[int] | None) -> Capture:
    network, _ = unwrap(model)
    depth = int(network.config.num_hidden_layers)
    chosen = range(depth) if layers is None else layers
    numbers = [checks.count(layer, "layers", smallest=-depth) for layer in chosen]
    if not numbers or max(numbers) >= depth:
        raise BadInput(f"layers must name some of 0 to {depth - 1}, got {list(chosen)}.")
    wanted = {layer % depth for layer in numbers}
    kept: dict[int, CapturedLayer] = {}

    def attention(call: Call) -> Tensor:
        output = attend_dense(call)
        if call.layer in wanted:
            tensors = call.query[0], call.key[0], call.value[0]
            bias = None if call.position_bias is None else distance_bias(call.position_bias)
            rest = call.mask, call.scale, call.softcap, bias
            kept[call.layer] = CapturedLayer.copied(call.layer, *tensors, *rest)
        return output

    base = network.base_model
    options = {"use_cache": False} if getattr(network.config, "use_cache", None) else {}
    with torch.no_grad():
        if needs_projections(network):
            kept = capture_projections(base, encoded, wanted)
        else:
            with attention_as(network, attention) as session:
                base(**encoded.inputs, **options)
            check_calls(network, session.calls)
    heads = len(next(iter(kept.values())).q)
    text = encoded.tokens, encoded.positions, encoded.special
    return Capture(kept, *text, depth, heads, encoded.source)


def distance_bias(position_bias: Tensor) -> Tensor:
    """Compress a (1, H, n, n) position bias that depends on j - i only to (H, 2n-1)."""
    matrix = position_bias[0]
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
