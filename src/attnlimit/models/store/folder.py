"""Writing a capture to a folder layer by layer, and reading it head by head from any address.

A file of a remote folder is copied here once, held to its hash on the way, and mapped into memory
like a local one. Copies are named by their hash: every process of a machine shares them, and a
capture that has changed is copied anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.files import MOST_JSON, Damaged, digest, write_atomically
from attnlimit.models.captured.captured import (
    Captured,
    CapturedLayer,
    Mask,
    OutputGradients,
    Probes,
)
from attnlimit.models.captured.encode import Encoded
from attnlimit.models.loading.model import cache_folder, file_hash
from attnlimit.models.loading.read import file_inside
from attnlimit.models.store.format import (
    MANIFEST,
    NAMES,
    GradientScale,
    LayerAttention,
    LayerFile,
    Manifest,
    Place,
    mapped,
    read_header,
    reason_of,
    rows_of,
    write_header,
)

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(:|/)")
"""How addresses begin: s3://bucket, simplecache::s3://bucket; a path made of one has one slash."""
HERE = "file://"


def is_address(folder: str | Path) -> bool:
    """Whether a capture's folder is not on this machine."""
    return ADDRESS.match(str(folder)) is not None and not str(folder).startswith(HERE)


def local_path(folder: str | Path) -> Path:
    """Return a path of this machine; an address is refused, for nothing is written elsewhere."""
    if is_address(folder):
        raise BadInput(
            f"{folder} is not a folder of this machine, where captures are written: name one, and "
            "copy it there."
        )
    return Path(str(folder).removeprefix(HERE)).expanduser()


def as_written(folder: str | Path) -> str:
    """Return a whole path, or an address as it is: what means the same to every worker."""
    return str(folder) if is_address(folder) else str(local_path(folder).resolve())


def inside(folder: str | Path, name: str) -> str:
    """Return what is in a folder: in the first path of a chain of addresses, zip://a::s3://b."""
    if not is_address(folder):
        return str(local_path(folder) / name)
    chain = str(folder).split("::")
    place = next((i for i, link in enumerate(chain) if "://" in link), -1)
    chain[place] = f"{chain[place].rstrip('/')}/{name}"
    return "::".join(chain)


def capture_file(folder: str | Path, name: str, most: int = MOST_JSON, sha256: str = "") -> Path:
    """Return a file of a capture's folder; one at an address is copied to the cache first.

    A remote file of more than `most` bytes, or of another hash than `sha256`, is refused.
    """
    none = BadInput(
        f"{folder} holds no capture: it has no {MANIFEST}, which is written last; make one with "
        "`attnlimit capture` or cap.save(folder)."
    )
    if not is_address(folder):
        if name == MANIFEST and not (local_path(folder) / name).is_file():
            raise none
        return file_inside(local_path(folder), name)
    address, cache = inside(folder, name), cache_folder() / "captures"
    if sha256 and (copy := cache / f"{sha256}-{name}").is_file():
        return copy
    try:
        import fsspec

        with fsspec.open(address, "rb") as file:
            content = file.read(most + 1)
    except ImportError:
        raise AttnlimitError(
            f"Reading {folder} needs fsspec and the package of its file system: run "
            "`pip install 'attnlimit[remote]'`, or copy the folder here."
        ) from None
    except FileNotFoundError:
        if name == MANIFEST:
            raise none from None
        raise Damaged(f"{address} is missing; copy the capture there again.") from None
    except Exception as error:  # every file system fails in a way of its own
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise BadInput(
            f"{address} cannot be read: {reason}; check its address and your access."
        ) from None
    if len(content) > most:
        raise Damaged(
            f"{address} is damaged: it is larger than it should be; copy the capture there again."
        )
    actual = digest(content)
    if actual != (sha256 or actual):
        raise Damaged(
            f"{address} is damaged: it does not have its SHA-256; copy the capture there again."
        )
    try:
        write_atomically(cache / f"{actual}-{name}", content, durable=False)
    except OSError as error:
        raise AttnlimitError(
            f"Cannot copy {address} to {cache}: {error.strerror or error}; set ATTNLIMIT_CACHE to "
            "a folder that can be written and has room."
        ) from None
    return cache / f"{actual}-{name}"


class StoredLayers(Mapping[int, CapturedLayer]):
    """The layers of a folder, each opened and checked when it is first used."""

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._files = {entry.layer: entry for entry in manifest.layers}
        self._open: dict[int, CapturedLayer] = {}

    def __getitem__(self, number: int) -> CapturedLayer:
        if number not in self._open:
            about = self._files[number]
            path = capture_file(self.folder, about.file, about.bytes, about.sha256)
            try:
                self._open[number] = _open_layer(path, about, self.manifest)
            except (OSError, KeyError, TypeError, ValueError) as error:
                raise Damaged(f"{path} is damaged: {reason_of(error)}; capture again.") from None
        return self._open[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _open_layer(path: Path, about: LayerFile, manifest: Manifest) -> CapturedLayer:
    """Map a layer's file, which is held to its hash; ValueError says what is wrong with it."""
    size = path.stat().st_size
    if size != about.bytes:
        raise ValueError(f"it has {size} bytes, and its manifest says {about.bytes}")
    if file_hash(path) != about.sha256:
        raise ValueError("it does not have its SHA-256")
    places, metadata = read_header(path)
    _check_shapes(places, manifest)
    attention = LayerAttention.model_validate_json(metadata["attention"])
    if attention.layer != about.layer:
        raise ValueError("it is of another layer")
    tensors = {name: mapped(path, place) for name, place in places.items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"it contains NaN or infinite numbers, in {name[:40]!r}")
    gradients = None
    if "g" in tensors:
        factors = GradientScale.model_validate_json(metadata["gradients"])
        gradients = OutputGradients(tensors["g"], factors.scale, factors.limit)
    positions, bias = tensors["positions"][0], tensors.get("bias")
    if bool((positions[1:] <= positions[:-1]).any()):
        raise ValueError("its positions do not rise")
    if bias is not None and int(positions[-1] - positions[0]) > (bias.shape[1] - 1) // 2:
        raise ValueError("its bias does not reach over its positions")
    return CapturedLayer(
        q=tensors["q"],
        k=tensors["k"],
        v=tensors["v"],
        mask=Mask(positions, attention.causal, attention.window),
        scale=attention.scale,
        softcap=attention.softcap,
        bias=bias,
        gradients=gradients,
    )


def _check_shapes(places: dict[str, Place], manifest: Manifest) -> None:
    tokens, heads = len(manifest.tokens), manifest.heads
    groups, width, value_width = places["k"].shape[0], places["q"].shape[-1], places["v"].shape[-1]
    kind: str = manifest.dtype
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "q": (kind, (heads, tokens, width)),
        "k": (kind, (groups, tokens, width)),
        "v": (kind, (groups, tokens, value_width)),
        "positions": ("I64", (1, tokens)),
    }
    if manifest.probes is not None:
        expected["g"] = (kind, (manifest.probes.count, heads, tokens, value_width))
    if "bias" in places:
        expected["bias"] = (places["bias"].dtype, (heads, places["bias"].shape[-1]))
    stated = {name: (place.dtype, place.shape) for name, place in places.items()}
    if stated != expected or 0 in (groups, width, value_width) or heads % groups:
        raise ValueError(
            f"its tensors are not those of {heads} heads over {tokens} tokens in {kind}"
            f"{'' if manifest.probes is None else ', with gradients'}"
        )


class AlreadyWritten(Exception):
    """The folder holds the whole capture: the pass of the model need not go on."""


class CaptureWriter:
    """Writes the layers of a capture to a folder, in any order, and then its manifest."""

    def __init__(
        self,
        folder: str | Path,
        text: Captured | Encoded,
        depth: int,
        layers: Sequence[int],
        probes: Probes | None = None,
    ) -> None:
        self.folder, self.text = local_path(folder), text
        self.depth, self.layers, self.probes = depth, tuple(layers), probes
        self._about: dict[str, Any] = {}
        self._written: list[LayerFile] = []

    def begin(self, like: CapturedLayer) -> None:
        """Check the folder; raise `AlreadyWritten` if it holds this capture, and all of it."""
        if self._about:
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f"{self.folder} is a file; name a folder for the capture.")
        self._about = {
            "tokens": self.text.tokens,
            "positions": tuple(self.text.positions.tolist()),
            "special": tuple(torch.nonzero(self.text.special).ravel().tolist()),
            "depth": self.depth,
            "heads": len(like.q),
            "dtype": NAMES[like.q.dtype],
            "source": json.loads(json.dumps(self.text.source)),  # as it will be read back
            "probes": self.probes,
        }
        if not (self.folder / MANIFEST).exists():
            return
        there = Manifest.read(self.folder / MANIFEST)
        same = all(getattr(there, name) == value for name, value in self._about.items())
        if not same or tuple(entry.layer for entry in there.layers) != self.layers:
            raise BadInput(
                f"{self.folder} holds another capture ({there.source.get('model', 'a model')}, "
                f"{len(there.tokens)} tokens); name another folder, or remove it."
            )
        paths = {self.folder / entry.file: entry.sha256 for entry in there.layers}
        if all(path.is_file() and file_hash(path) == sha256 for path, sha256 in paths.items()):
            raise AlreadyWritten

    def add(self, number: int, layer: CapturedLayer) -> None:
        """Write one layer."""
        self.begin(layer)
        tensors = {"q": layer.q, "k": layer.k, "v": layer.v}
        tensors["positions"] = layer.mask.positions.to(torch.int64)[None]
        attention = {
            "layer": number,
            "causal": layer.mask.causal,
            "window": layer.mask.window,
            "scale": layer.scale,
            "softcap": layer.softcap,
        }
        metadata = {"attention": json.dumps(attention, allow_nan=False)}
        if layer.bias is not None:
            tensors["bias"] = layer.bias
        if layer.gradients is not None:
            tensors["g"] = layer.gradients.g
            factors = {"scale": layer.gradients.scale, "limit": layer.gradients.limit}
            metadata["gradients"] = json.dumps(factors, allow_nan=False)
        header = write_header(tensors, metadata)
        path, sha256 = self.folder / f"layer-{number:04d}.safetensors", hashlib.sha256()

        def content() -> Iterator[bytes]:
            for piece in chain([header], *map(rows_of, tensors.values())):
                sha256.update(piece)
                yield piece

        write_atomically(path, content())
        size, digits = path.stat().st_size, sha256.hexdigest()
        self._written.append(LayerFile(layer=number, file=path.name, bytes=size, sha256=digits))

    def finish(self) -> None:
        """Write the manifest, without which a folder holds no capture."""
        files = tuple(sorted(self._written, key=lambda entry: entry.layer))
        Manifest(**self._about, layers=files).write(self.folder)


def save(capture: Captured, folder: str | Path) -> Path:
    """Write a capture to a folder, which `attnlimit.models.open_capture` opens.

    One safetensors file a layer and a manifest with their hashes (docs/captures.md). A folder with
    another capture is refused.
    """
    layers = sorted(capture.layers)
    writer = CaptureWriter(folder, capture, capture.depth, layers, capture.probes)
    with suppress(AlreadyWritten):
        for number in layers:
            writer.add(number, capture.layers[number])
        writer.finish()
    return writer.folder
