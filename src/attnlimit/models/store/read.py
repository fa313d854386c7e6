"""How is a capture's folder read? Mapped into memory, head by head, each held to its hash."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlimit.files import Damaged
from attnlimit.models.capture.captured import CapturedHead, CapturedLayer, OutputGradients
from attnlimit.models.capture.masks import Mask
from attnlimit.models.store.folder import Folder
from attnlimit.models.store.manifest import LayerFile, Manifest
from attnlimit.models.store.tensors import Header, mapped, read_header, row_digest
from attnlimit.models.store.write import ATTENTION, GRADIENTS

FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, eq=False)
class StoredLayer(CapturedLayer):
    """A layer in a file: what is asked for is read, and checked when it is read first."""

    path: Path = Path()
    about: LayerFile | None = None
    header: Header | None = None
    sound: set[tuple[str, int]] = field(default_factory=set)

    def head(self, layer: int, head: int) -> CapturedHead:
        """One head; its part of the file is held to its hash."""
        group = head * len(self.k) // len(self.q)
        for name, row in (("q", head), ("k", group), ("v", group)):
            self.check(name, row)
        found = super().head(layer, head)
        for name in ("q", "k", "v"):
            if not torch.isfinite(getattr(found, name)).all():
                raise Damaged(f"{self.path} contains NaN or infinite numbers, in {name}.")
        return found

    def felt(self, probes: slice) -> Tensor:
        """Gradients of some probes; each is held to its hash."""
        assert self.gradients is not None
        for row in range(*probes.indices(len(self.gradients.g))):
            self.check("g", row)
        found = super().felt(probes)
        if not torch.isfinite(found).all():
            raise Damaged(f"{self.path} contains NaN or infinite numbers, in g.")
        return found

    def check(self, name: str, row: int) -> None:
        """Raise unless an entry of a tensor has the hash that the manifest says."""
        assert self.about is not None
        assert self.header is not None
        if (name, row) in self.sound:
            return
        if row_digest(self.path, self.header.places[name], row) != self.about.parts[name][row]:
            raise Damaged(
                f"{self.path} is damaged: entry {row} of {name} does not have its SHA-256; capture "
                "again, which keeps the layers that are whole."
            )
        self.sound.add((name, row))


class StoredLayers(Mapping[int, CapturedLayer]):
    """The layers of a folder, each opened when it is first asked for."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._open: dict[int, StoredLayer] = {}

    def __getitem__(self, number: int) -> StoredLayer:
        if number not in self._open:
            about = self.manifest.layers[number]
            path = self.folder.file(about)
            try:
                self._open[number] = _layer(path, about, self.manifest)
            except (OSError, KeyError, TypeError, ValueError) as error:
                if isinstance(error, Damaged):
                    raise
                raise Damaged(f"{path} is damaged: {error}.") from None
        return self._open[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self.manifest.wanted)

    def __len__(self) -> int:
        return len(self.manifest.wanted)


def _layer(path: Path, about: LayerFile, manifest: Manifest) -> StoredLayer:
    size = path.stat().st_size
    if size != about.bytes:
        raise ValueError(f"it has {size} bytes, and its manifest says {about.bytes}")
    header = read_header(path)
    if header.sha256 != about.header:
        raise ValueError("its header does not have its SHA-256")
    _check_shapes(header, about, manifest)
    said = json.loads(header.metadata[ATTENTION])
    mask, scale, softcap = _attention(said, about.layer)
    places = header.places
    positions = mapped(path, places["positions"])[0]
    layer = StoredLayer(
        q=mapped(path, places["q"]),
        k=mapped(path, places["k"]),
        v=mapped(path, places["v"]),
        mask=Mask(positions, *mask),
        scale=scale,
        softcap=softcap,
        bias=mapped(path, places["bias"]) if "bias" in places else None,
        gradients=_gradients(path, header),
        path=path,
        about=about,
        header=header,
    )
    layer.check("positions", 0)
    for row in range(len(layer.bias) if layer.bias is not None else 0):
        layer.check("bias", row)
    if bool((positions[1:] <= positions[:-1]).any()):
        raise ValueError("its positions do not rise")
    span = int(positions[-1] - positions[0])
    if layer.bias is not None and span > (layer.bias.shape[1] - 1) // 2:
        raise ValueError("its bias does not reach over its positions")
    return layer


def _check_shapes(header: Header, about: LayerFile, manifest: Manifest) -> None:
    places, tokens, heads = header.places, len(manifest.tokens), manifest.heads
    q, k, v = (places[name] for name in ("q", "k", "v"))
    if any(len(one.shape) != 3 or one.dtype != manifest.dtype for one in (q, k, v)):
        raise ValueError(f"q, k and v are not three axes of {manifest.dtype} each")
    fits = (
        manifest.dtype in FLOATS
        and q.shape[:2] == (heads, tokens)
        and q.shape[2] == k.shape[2] > 0 < v.shape[2]
        and k.shape[:2] == v.shape[:2] == (k.shape[0], tokens)
        and k.shape[0] > 0 == heads % k.shape[0]
        and places["positions"].dtype == "I64"
        and places["positions"].shape == (1, tokens)
    )
    if "bias" in places:
        bias = places["bias"]
        fits &= bias.dtype in FLOATS and len(bias.shape) == 2 and bias.shape[0] == heads
    if (manifest.probes is None) == ("g" in places):
        raise ValueError("its manifest says otherwise whether it has gradients of the output")
    if manifest.probes is not None:
        g = places["g"]
        fits &= g.dtype == manifest.dtype
        fits &= g.shape == (manifest.probes.count, heads, tokens, v.shape[2])
    if not fits:
        raise ValueError(f"its shapes are not those of {heads} heads over {tokens} tokens")
    if {name: len(rows) for name, rows in about.parts.items()} != {
        name: place.shape[0] for name, place in places.items()
    }:
        raise ValueError("its manifest has other hashes than one for each entry of its tensors")


def _attention(said: Any, number: int) -> tuple[tuple[bool, int | None], float, float | None]:
    if not isinstance(said, dict) or said.get("layer") != number:
        raise ValueError("it is of another layer")
    causal, window, scale, softcap = (
        said[name] for name in ("causal", "window", "scale", "softcap")
    )
    if type(causal) is not bool or not (window is None or (type(window) is int and window > 0)):
        raise ValueError(f"its mask is causal {causal!r}, window {window!r}")
    _check_positive({"scale": scale} | ({} if softcap is None else {"softcap": softcap}))
    return (causal, window), scale, softcap


def _gradients(path: Path, header: Header) -> OutputGradients | None:
    if "g" not in header.places:
        return None
    said = json.loads(header.metadata[GRADIENTS])
    if not isinstance(said, dict):
        raise ValueError("it does not say what its gradients are multiplied with")
    factors = {name: said[name] for name in ("scale", "limit")}
    _check_positive(factors)
    return OutputGradients(mapped(path, header.places["g"]), **factors)


def _check_positive(numbers: dict[str, Any]) -> None:
    for name, value in numbers.items():
        if type(value) is not float or not math.isfinite(value) or value <= 0:
            raise ValueError(f"its {name} is {str(value)[:40]}")
