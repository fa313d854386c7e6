"""How are the inputs of every attention head taken? From a model in one pass, or from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Captured, CapturedLayer
from attnlimit.models.capture.encode import Encoded, encode, encode_windows, unwrap
from attnlimit.models.capture.run import chosen_layers, run_layers
from attnlimit.models.heads import curves, horizon, influence, profile, rounding, temperature
from attnlimit.models.output.stored import write_probed
from attnlimit.models.store.folder import folder_at, local_path
from attnlimit.models.store.manifest import Manifest
from attnlimit.models.store.read import StoredLayers
from attnlimit.models.store.write import LayersAsFiles, WholeAlready, save


class Capture(Captured):
    """Every head of a model on one text. `cap[layer, head]` gives its q, k, v and mask."""

    horizons = horizon.horizons
    influence = influence.influence
    profile = profile.profile
    rounding = rounding.rounding
    temperatures = temperature.temperatures
    predict_curve = curves.predict_capture
    measure_curve = curves.measure_capture
    save = save


def capture(
    model: Any,
    text: str | Sequence[int] | Tensor | Mapping[str, Tensor],
    *,
    layers: Sequence[int] | None = None,
    special_tokens: bool = True,
    truncate: bool = False,
    folder: str | Path | None = None,
    probes: int | None = None,
    output: str | None = None,
    seed: int = 0,
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
    special_tokens : bool
        Whether tokens such as [CLS] are added to a text.
    truncate : bool
        Whether a text beyond the model's positions is cut there; otherwise it is refused, and
        `capture_windows` splits it.
    folder : path, optional
        Where layers are written as they come, so that one is held at a time; the capture returned
        reads them there. Layers that an interrupted capture left in the folder are kept.
    probes : int, optional
        Backward passes whose gradients are written with the layers, so that `plan_output` can plan
        for the model's output from the folder alone, as it would with the same probes and seed.
    output : "kl" or "cosine", optional
        What of the output they are of: its next tokens (the default of causal models), or its
        embedding.
    seed : int
        Of the probes.
    about : mapping, optional
        More to remember of where the text comes from, in `Capture.source`.
    """
    encoded = encode(model, text, special_tokens=special_tokens, truncate=truncate)
    encoded.source.update(about or {})
    if probes is not None:
        if folder is None or layers is not None:
            raise BadInput(
                "Gradients are kept in files and of every layer: give probes with a folder, and "
                "without layers."
            )
        write_probed(model, encoded, local_path(folder), probes, output, seed)
        return open_capture(folder)
    if folder is None:
        return _run(model, encoded, layers)
    network, _ = unwrap(model)
    depth = int(network.config.num_hidden_layers)
    wanted = chosen_layers(depth, layers)
    files = LayersAsFiles(folder, encoded, depth, wanted)
    with suppress(WholeAlready):
        run_layers(model, encoded, wanted, files.add)
    return open_capture(folder)


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


def open_capture(folder: str | Path) -> Capture:
    """Open a capture that `Capture.save` or `attnlimit capture` wrote; transformers is not needed.

    Tensors are mapped into memory and read head by head; each is held to its hash when it is read
    first. The folder may be anywhere that fsspec reads, as "s3://bucket/folder": its files are
    copied to this machine's cache when they are first needed.
    """
    place = folder_at(folder)
    found = Manifest.read(place.manifest())
    if found.missing:
        raise BadInput(
            f"{folder} has {len(found.layers)} of {len(found.wanted)} layers: its capture was "
            "interrupted; run the same command again, which goes on where it was."
        )
    special = torch.zeros(len(found.tokens), dtype=torch.bool)
    special[list(found.special)] = True
    text = found.tokens, torch.tensor(found.positions), special
    layers, shape = StoredLayers(place, found), (found.depth, found.heads)
    return Capture(layers, *text, *shape, found.source, found.probes)


def _run(model: Any, encoded: Encoded, layers: Sequence[int] | None) -> Capture:
    network, _ = unwrap(model)
    depth = int(network.config.num_hidden_layers)
    kept: dict[int, CapturedLayer] = {}

    def keep(number: int, layer: CapturedLayer) -> None:
        kept[number] = layer.copied()

    run_layers(model, encoded, chosen_layers(depth, layers), keep)
    heads = len(next(iter(kept.values())).q)
    text = encoded.tokens, encoded.positions, encoded.special
    return Capture(kept, *text, depth, heads, encoded.source)
