"""How does a capture become files? Layer by layer, as they come, so that one is held at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.files import write_atomically
from attnlimit.models.capture.captured import Captured, CapturedLayer, Probes
from attnlimit.models.capture.encode import Encoded
from attnlimit.models.load.load import file_hash
from attnlimit.models.store.folder import local_path
from attnlimit.models.store.manifest import NAME, LayerFile, Manifest, file_of
from attnlimit.models.store.tensors import NAMES, rows_of, write_header

ATTENTION = "attention"
"""The key of a file's metadata that holds mask, scale and softcap, as JSON."""
GRADIENTS = "gradients"
"""The key that holds what the output's gradients are multiplied with, as JSON."""


class StoreWriter:
    """Writes the layers of one capture to a folder, in any order; goes on where it was stopped."""

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        self.folder = local_path(folder)
        self.manifest = manifest
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f"{self.folder} is a file; name a folder for the capture.")
        if (self.folder / NAME).exists():
            self.manifest = self._found(Manifest.read(self.folder / NAME))
        self.manifest.write(self.folder)

    def _found(self, there: Manifest) -> Manifest:
        if there.identity != self.manifest.identity:
            raise BadInput(
                f"{self.folder} holds another capture ({there.source.get('model', 'a model')}, "
                f"{len(there.tokens)} tokens); name another folder, or remove it."
            )
        whole = {
            number: one
            for number, one in there.layers.items()
            if (path := self.folder / one.file).is_file() and file_hash(path) == one.sha256
        }
        return Manifest(**{**vars(there), "layers": whole})

    def add(self, number: int, layer: CapturedLayer) -> None:
        """Write one layer, unless it is there already."""
        if number not in self.manifest.missing:
            return
        tensors = _tensors(layer)
        about = {
            "layer": number,
            "causal": layer.mask.causal,
            "window": layer.mask.window,
            "scale": layer.scale,
            "softcap": layer.softcap,
        }
        metadata = {ATTENTION: json.dumps(about, allow_nan=False)}
        if (felt := layer.gradients) is not None:
            factors = {"scale": felt.scale, "limit": felt.limit}
            metadata[GRADIENTS] = json.dumps(factors, allow_nan=False)
        header = write_header(tensors, metadata)
        whole, parts = hashlib.sha256(header), {name: list[str]() for name in tensors}
        size = len(header)

        def content() -> Iterator[bytes]:
            nonlocal size
            yield header
            for name, tensor in tensors.items():
                for row in rows_of(tensor):
                    whole.update(row)
                    parts[name].append(hashlib.sha256(row).hexdigest())
                    size += len(row)
                    yield row

        write_atomically(self.folder / file_of(number), content())
        hashes = whole.hexdigest(), hashlib.sha256(header).hexdigest()
        entry = LayerFile(number, file_of(number), size, *hashes, parts)
        self.manifest = self.manifest.with_layer(entry)
        self.manifest.write(self.folder)


def _tensors(layer: CapturedLayer) -> dict[str, Tensor]:
    tensors = {"q": layer.q, "k": layer.k, "v": layer.v}
    tensors["positions"] = layer.mask.positions.to(torch.int64)[None]
    if layer.bias is not None:
        tensors["bias"] = layer.bias
    if layer.gradients is not None:
        tensors["g"] = layer.gradients.g
    return tensors


class WholeAlready(Exception):
    """Every layer is there: the pass need not go on."""


class LayersAsFiles:
    """Takes a model's layers as they come; the folder is begun when the first says its shape."""

    def __init__(
        self,
        folder: str | Path,
        encoded: Encoded,
        depth: int,
        wanted: Sequence[int],
        probes: Probes | None = None,
    ) -> None:
        self.folder, self.encoded = folder, encoded
        self.depth, self.wanted, self.probes = depth, tuple(wanted), probes
        self._writer: StoreWriter | None = None

    def begun(self, like: CapturedLayer) -> StoreWriter:
        """Return what writes layers like this one; raise `WholeAlready` if none was missing."""
        if self._writer is None:
            text = self.encoded
            places = text.tokens, text.positions, text.special
            about = _manifest(*places, self.depth, like, self.wanted, text.source, self.probes)
            self._writer = StoreWriter(self.folder, about)
            if not self._writer.manifest.missing:
                raise WholeAlready
        return self._writer

    def add(self, number: int, layer: CapturedLayer) -> None:
        """Write one layer; raise `WholeAlready` if none was missing."""
        self.begun(layer).add(number, layer)


def save(capture: Captured, folder: str | Path) -> Path:
    """Write a capture to a folder, which `attnlimit.models.open_capture` opens.

    One safetensors file a layer and a manifest with their hashes (docs/captures.md). Saving again
    to a folder that was left unfinished goes on there; a folder with another capture is refused.
    """
    places = capture.tokens, capture.positions, capture.special
    first, wanted = next(iter(capture.layers.values())), tuple(sorted(capture.layers))
    about = _manifest(*places, capture.depth, first, wanted, capture.source, capture.probes)
    writer = StoreWriter(folder, about)
    for number, layer in capture.layers.items():
        writer.add(number, layer)
    return writer.folder


def _manifest(
    tokens: tuple[str, ...],
    positions: Tensor,
    special: Tensor,
    depth: int,
    like: CapturedLayer,
    wanted: tuple[int, ...],
    source: dict[str, Any],
    probes: Probes | None,
) -> Manifest:
    return Manifest(
        tokens=tokens,
        positions=tuple(positions.tolist()),
        special=tuple(torch.nonzero(special).ravel().tolist()),
        depth=depth,
        heads=len(like.q),
        dtype=NAMES[like.q.dtype],
        wanted=wanted,
        source=json.loads(json.dumps(source)),  # as it will be read back
        probes=probes,
    )
