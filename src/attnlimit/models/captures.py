"""Captures of a model in one pass, from a folder, or from arrays of your own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models import curves
from attnlimit.models.attention import Call, Mask, attend_dense, attention_as, check_calls, precise
from attnlimit.models.captured import Captured, CapturedLayer
from attnlimit.models.passes import Encoded, encode, unwrap
from attnlimit.models.profile import horizons, influence, profile
from attnlimit.models.store import (
    MANIFEST,
    AlreadyWritten,
    CaptureWriter,
    Manifest,
    StoredLayers,
    capture_file,
    save,
)
from attnlimit.models.texts import Passage

SHAPES = "(N, d) for a head, (H, N, d) for a layer or (L, H, N, d) for a model"


class Capture(Captured):
    """Every head of a model on one text. `cap[layer, head]` gives its q, k, v and mask."""

    horizons = horizons
    influence = influence
    profile = profile
    predict_curve = curves.predict_capture
    measure_curve = curves.measure_capture
    save = save


def capture(
    model: Any,
    text: str | Sequence[int] | Tensor | Mapping[str, Tensor],
    *,
    layers: Sequence[int] | None = None,
    truncate: bool = False,
    folder: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
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
    truncate : bool
        Whether a text beyond the model's positions is cut there; otherwise it is refused.
    folder : path, optional
        Where layers are written as they come, so that one is held at a time; the capture returned
        reads them there. A folder that holds the whole capture already is kept as it is.
    about : mapping, optional
        More to remember of where the text comes from, in `Capture.source`.
    """
    encoded = encode(model, text, truncate=truncate)
    encoded.source.update(about or {})
    network, _ = unwrap(model)
    depth = int(network.config.num_hidden_layers)
    chosen = range(depth) if layers is None else layers
    numbers = [checks.count(number, "layers", smallest=-depth) for number in chosen]
    if not numbers or max(numbers) >= depth:
        raise BadInput(f"layers must name some of 0 to {depth - 1}, got {list(chosen)}.")
    wanted = sorted({number % depth for number in numbers})
    if folder is None:
        kept: dict[int, CapturedLayer] = {}
        run_layers(model, encoded, wanted, lambda i, layer: kept.update({i: layer.copied()}))
        heads = len(next(iter(kept.values())).q)
        tokens, places, special = encoded.tokens, encoded.positions, encoded.special
        return Capture(kept, tokens, places, special, depth, heads, encoded.source)
    writer = CaptureWriter(folder, encoded, depth, wanted)
    with suppress(AlreadyWritten):
        run_layers(model, encoded, wanted, writer.add)
        writer.finish()
    return open_capture(folder)


def open_capture(folder: str | Path) -> Capture:
    """Open a capture that `Capture.save` or `attnlimit capture` wrote; transformers is not needed.

    Tensors are mapped into memory and read head by head; each is held to its hash when it is read
    first.
    """
    manifest = Manifest.read(capture_file(folder, MANIFEST))
    special = torch.zeros(len(manifest.tokens), dtype=torch.bool)
    special[list(manifest.special)] = True
    text = manifest.tokens, torch.tensor(manifest.positions), special
    layers, shape = StoredLayers(folder, manifest), (manifest.depth, manifest.heads)
    return Capture(layers, *text, *shape, manifest.source, manifest.probes)


def from_arrays(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    tokens: Sequence[str] | None = None,
) -> Capture:
    """Make a capture of your own tensors: what `capture` gives, without a model or transformers.

    Parameters
    ----------
    q, k, v : arrays
        Of numpy, torch, or any library whose arrays have `__array__` or `__dlpack__` (JAX, MLX,
        CuPy): (N, d) for one head, (H, N, d) for a layer, (L, H, N, d) for a model. Keys and
        values may have fewer heads than queries, which then share them in groups; values may have
        a width of their own. Queries and keys as they are multiplied, after any rotation.
    causal : bool
        Whether a query sees only keys up to its own place.
    window : int, optional
        Whether it sees only keys less than so many places away.
    scale : float, optional
        Factor of <q, k>; 1 / sqrt(d) by default.
    tokens : sequence of str, optional
        Names of the N tokens.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 2, 16, 4))  # two heads of 16 tokens
    >>> al.models.from_arrays(q, k, v, causal=True)
    Capture(own tensors, layers=1, heads=2, tokens=16)
    """
    given = {name: _tensor(value, name) for name, value in {"q": q, "k": k, "v": v}.items()}
    _check_shapes(given)
    wide = [tensor[(None,) * (4 - tensor.dim())] for tensor in given.values()]
    kind = torch.promote_types(torch.promote_types(*(t.dtype for t in wide[:2])), wide[2].dtype)
    wide = [tensor.to(kind) for tensor in wide]
    depth, heads, length, size = wide[0].shape
    factor = size**-0.5 if scale is None else checks.positive(scale, "scale")
    names = tuple(map(str, range(length) if tokens is None else tokens))
    if len(names) != length:
        raise BadInput(f"There are {len(names)} names for {length} tokens; give one for each.")
    places = torch.arange(length)
    mask = Mask(places, bool(causal), None if window is None else checks.count(window, "window"))
    layers = {
        number: CapturedLayer(q, k, v, mask, float(factor))
        for number, (q, k, v) in enumerate(zip(*wide, strict=True))
    }
    # The hash of all numbers, where a model has that of its weights.
    weights = hashlib.sha256(str([(tensor.dtype, tuple(tensor.shape)) for tensor in wide]).encode())
    for tensor in wide:
        weights.update(tensor.contiguous().view(torch.uint8).numpy().data)
    source = {"model": "own tensors", "weights": weights.hexdigest(), "licence": "your own"}
    return Capture(layers, names, places, places < 0, depth, heads, source | {"notes": []})


def _tensor(value: Any, name: str) -> Tensor:
    refused = BadInput(f"{name} must be an array of real numbers, {SHAPES}; got {type(value)}.")
    if not isinstance(value, Tensor):
        try:
            array = np.asarray(value)
            if array.dtype.kind in "iuf" and array.dtype.itemsize <= 8:
                value = torch.from_numpy(np.array(array, order="C"))
            else:  # such as bfloat16, which numpy does not have
                value = torch.from_dlpack(value)
        except Exception:  # another library's array may fail in any way
            raise refused from None
    tensor = value.detach().cpu()
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise refused
    kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    return tensor if tensor.dtype in kinds else tensor.double()


def _check_shapes(given: dict[str, Tensor]) -> None:
    """Raise unless q, k and v have shapes of one head, layer or model, and finite entries."""
    listed = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in given.items())
    q, k, v = shapes = [
        (1,) * (4 - tensor.dim()) + tuple(tensor.shape) for tensor in given.values()
    ]
    axes = {tensor.dim() for tensor in given.values()}
    wrong = {
        f"all be {SHAPES}": len(axes) > 1 or not axes <= {2, 3, 4},
        "not be empty": any(0 in shape for shape in shapes),
        "be of the same N tokens": len({shape[2] for shape in shapes}) > 1,
        "have queries and keys of the same width d": q[3] != k[3],
        "have as many heads of k as of v, one for each group of q's": (
            k[1] != v[1] or q[1] % max(1, k[1]) > 0
        ),
        "have the same number of layers": len({shape[0] for shape in shapes}) > 1,
    }
    for expected, failed in wrong.items():
        if failed:
            raise BadInput(f"q, k and v must {expected}; they are {listed}.")
    if q[2] < 2:
        raise BadInput("There is one token; attention over it has nothing to sample, give more.")
    for name, tensor in given.items():
        if not torch.isfinite(tensor).all():
            raise BadInput(f"{name} contains NaN or infinite numbers; remove them first.")


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


MAX_PARTS = 1 << 16


def part_folder(folder: Path, part: int) -> Path:
    """Folder of a passage: the first is in the capture's own folder, the others are inside it."""
    return folder if part == 0 else folder / f"part-{part}"


def open_passages(folder: str | Path) -> tuple[Capture, ...]:
    """Open the capture of every passage in a folder that `attnlimit capture` wrote."""
    first = open_capture(folder)
    parts = first.source.get("parts", 1)
    if type(parts) is not int or not 1 <= parts <= MAX_PARTS:
        raise BadInput(f"The capture in {folder} states {str(parts)[:40]!r} parts.")
    return (first, *(open_capture(part_folder(Path(folder), part)) for part in range(1, parts)))


def passage_of(capture: Capture, folder: str | Path) -> Passage:
    """Return the passage of text that a stored capture is of."""
    stated = capture.source.get("passage")
    size = len(capture)
    if stated is None:
        return Passage(str(folder), str(folder), "your own", 0, tuple(range(size)))
    types = {"text": str, "source": str, "licence": str, "part": int, "ids": list}
    if not isinstance(stated, dict) or {key: type(v) for key, v in stated.items()} != types:
        raise BadInput(f"The capture in {folder} does not state its text; capture it again.")
    if len(stated["ids"]) != size or not all(type(number) is int for number in stated["ids"]):
        raise BadInput(f"The capture in {folder} has other tokens than its text; capture it again.")
    return Passage(**stated | {"ids": tuple(stated["ids"])})
