"""Captures in folders: written layer by layer, read head by head.

A folder holds a manifest, and one safetensors file for each layer. That format is eight bytes, a
JSON header and numbers; it is read and written here, so that captures work where neither
transformers nor safetensors is installed, and a hostile header is refused in a sentence.
docs/captures.md lists the fields.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.files import Damaged, read_json, write_atomically
from attnlimit.models.attention import Mask
from attnlimit.models.captured import Captured, CapturedLayer, OutputGradients, Probes
from attnlimit.models.loading import file_hash
from attnlimit.models.model_files import file_inside
from attnlimit.models.passes import Encoded

SCHEMA = "attnlimit.capture/2"
MANIFEST = "capture.json"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<i2", "I64": "<i8"}
"""How numpy reads the bytes; it has no bfloat16, which torch takes from whole numbers."""
METADATA = "__metadata__"
MOST_HEADER = 1 << 22

Index = Annotated[int, Field(ge=0, lt=1 << 62)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Stored(BaseModel):
    """Base of what is read from JSON: values are not converted."""

    model_config = ConfigDict(strict=True, frozen=True)


class LayerFile(Stored):
    """A layer's file."""

    model_config = ConfigDict(extra="forbid")

    layer: int
    file: Annotated[str, Field(pattern=r"^layer-[0-9]{4,6}\.safetensors$")]
    bytes: Index
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class LayerAttention(Stored):
    """Mask and scores of a layer, in the metadata of its file."""

    layer: int
    causal: bool
    window: Annotated[int, Field(gt=0)] | None
    scale: Positive
    softcap: Positive | None


class GradientScale(Stored):
    """Factors of a layer's gradients, in the metadata of its file (`OutputGradients`)."""

    scale: Positive
    limit: Positive


class Manifest(Stored):
    """Everything that a folder states about its capture, except the tensors."""

    model_config = ConfigDict(extra="forbid")

    tokens: Annotated[tuple[str, ...], Field(min_length=2)]
    positions: tuple[Index, ...]
    special: tuple[Index, ...]  # places of the special tokens
    depth: Count
    heads: Count
    dtype: Literal["F64", "F32", "F16", "BF16"]
    source: dict[str, Any]
    probes: Probes | None = None  # whose gradients are in the layers' files
    layers: Annotated[tuple[LayerFile, ...], Field(min_length=1)]  # by number

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: dict[str, Any]) -> dict[str, Any]:
        notes = source.get("notes", [])
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            raise ValueError("notes are not a list of texts")
        return source

    @model_validator(mode="after")
    def _check(self) -> Manifest:
        size, numbers = len(self.tokens), [entry.layer for entry in self.layers]
        if len(self.positions) != size:
            raise ValueError(f"there are {size} tokens and {len(self.positions)} positions")
        if any(place >= size for place in self.special):
            raise ValueError("a special token is not among the tokens")
        if sorted(set(numbers)) != numbers or not 0 <= numbers[0] <= numbers[-1] < self.depth:
            raise ValueError("its files are not of layers of the model, in their order")
        return self

    def write(self, folder: Path) -> None:
        """Write the manifest, whole or not at all."""
        content = {"schema": SCHEMA, **self.model_dump(mode="json")}
        write_atomically(folder / MANIFEST, (json.dumps(content, allow_nan=False) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest; anything that `write` does not write is refused."""
        content = read_json(path)
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise BadInput(f"{path} is not a capture of schema {SCHEMA}.")
        try:
            return cls.model_validate_json(json.dumps(content))
        except ValidationError as error:
            raise Damaged(f"{path} is damaged: {reason_of(error)}; capture again.") from None


def reason_of(error: Exception) -> str:
    """One line on what is wrong with a file."""
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
    first = error.errors()[0]
    place = ".".join(ascii(str(part)[:40])[1:-1] for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{place}: {message}" if place else message


class TensorEntry(Stored):
    """A tensor in the header of a safetensors file."""

    model_config = ConfigDict(extra="forbid")

    dtype: Literal["F64", "F32", "F16", "BF16", "I64"]
    shape: Annotated[tuple[Index, ...], Field(min_length=1)]
    data_offsets: tuple[Index, Index]


_HEADER: TypeAdapter[dict[str, TensorEntry | dict[str, str]]] = TypeAdapter(
    dict[str, TensorEntry | dict[str, str]]
)


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file

    @property
    def stop(self) -> int:
        """End of the tensor, in bytes from the beginning of the file."""
        return self.start + math.prod(self.shape) * DTYPES[self.dtype].itemsize


def write_header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a file that holds `tensors` one after another."""
    content: dict[str, object] = {METADATA: dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        content[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of eight bytes
    return len(text).to_bytes(8, "little") + text


def rows_of(tensor: Tensor) -> Iterator[bytes]:
    """Bytes of a tensor, entry by entry along its first axis: of q, k and v, head by head."""
    for row in tensor.detach():
        plain = row.cpu().contiguous()
        array = (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
        yield array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def read_header(path: Path) -> tuple[dict[str, Place], dict[str, str]]:
    """Return the places of a file's tensors and its metadata; ValueError says what is wrong."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or not 2 <= length <= min(size - 8, MOST_HEADER):
            raise ValueError("its header has no length that fits it")
        text = file.read(length)
    content = _HEADER.validate_json(text)
    metadata, places = content.pop(METADATA, {}), {}
    if not isinstance(metadata, dict):
        raise ValueError("its metadata are not texts")
    for name, entry in content.items():
        if isinstance(entry, dict):
            raise ValueError(f"its tensor {name[:40]!r} is not described")
        start, stop = (8 + length + offset for offset in entry.data_offsets)
        place = Place(entry.dtype, entry.shape, start)
        if place.stop != stop or stop > size:
            raise ValueError(f"its tensor {name[:40]!r} does not fit its place in the file")
        places[name] = place
    return places, metadata


def mapped(path: Path, place: Place) -> Tensor:
    """Map a tensor of a file into memory: no byte is read yet.

    Writing to it changes a copy, never the file.
    """
    if not math.prod(place.shape):
        return torch.empty(place.shape, dtype=DTYPES[place.dtype])
    array = np.memmap(path, NUMPY[place.dtype], mode="c", offset=place.start, shape=place.shape)
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if place.dtype == "BF16" else tensor


def capture_file(folder: str | Path, name: str) -> Path:
    """Return a file of a capture's folder."""
    place = Path(folder).expanduser()
    if name == MANIFEST and not (place / name).is_file():
        raise BadInput(
            f"{folder} holds no capture: it has no {MANIFEST}, which is written last; make one "
            "with `attnlimit capture` or cap.save(folder)."
        )
    return file_inside(place, name)


class StoredLayers(Mapping[int, CapturedLayer]):
    """The layers of a folder, each opened and checked when it is first used."""

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._files = {entry.layer: entry for entry in manifest.layers}
        self._open: dict[int, CapturedLayer] = {}

    def __getitem__(self, number: int) -> CapturedLayer:
        if number not in self._open:
            about = self._files[number]
            path = capture_file(self.folder, about.file)
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
        self.folder, self.text = Path(folder).expanduser(), text
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
