"""What is in a safetensors file? Its header, read and written here: eight bytes, JSON, numbers.

The format is so small that a reader of its own costs less than a dependency: captures are read
where neither transformers nor safetensors is installed, and a hostile header is refused in a
sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnlimit.errors import BadInput

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
CARRIER = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<i2", "I64": "<i8"}
"""How numpy reads the bytes; it has no bfloat16, which torch takes from whole numbers."""

METADATA = "__metadata__"
MOST_HEADER = 1 << 22
ALIGNED = 8


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file

    @property
    def row(self) -> int:
        """Bytes of one entry along the first axis."""
        return math.prod(self.shape[1:]) * DTYPES[self.dtype].itemsize

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.shape[0] * self.row


@dataclass(frozen=True)
class Header:
    """The header of a file: where its tensors lie, and what it says of itself."""

    places: dict[str, Place]
    metadata: dict[str, str]
    bytes: int  # of the header, its length included
    sha256: str


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
    text += b" " * (-len(text) % ALIGNED)
    return len(text).to_bytes(8, "little") + text


def rows_of(tensor: Tensor) -> Iterator[bytes]:
    """Bytes of a tensor, entry by entry along its first axis: of q, k and v, head by head."""
    for row in tensor.detach():
        plain = row.cpu().contiguous()
        plain = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
        yield plain.numpy().astype(plain.numpy().dtype.newbyteorder("<"), copy=False).tobytes()


def read_header(path: Path) -> Header:
    """Read and check a file's header; ValueError says what is wrong with it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or not 2 <= length <= min(size - 8, MOST_HEADER):
            raise ValueError("its header has no length that fits it")
        text = file.read(length)
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("its header is not a JSON object")
    metadata = content.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its metadata are not texts")
    places = {str(name): _place(name, entry, 8 + length, size) for name, entry in content.items()}
    return Header(places, metadata, 8 + length, hashlib.sha256(first + text).hexdigest())


def _place(name: str, entry: object, begin: int, size: int) -> Place:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"its tensor {name!r} is not described")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in DTYPES:
        raise ValueError(f"its tensor {name!r} is of {str(dtype)[:40]}, which is not read here")
    whole = [isinstance(v, list) and all(type(n) is int and n >= 0 for n in v)
             for v in (shape, offsets)]  # fmt: skip
    if not all(whole) or len(offsets) != 2 or not shape:
        raise ValueError(f"its tensor {name!r} has no shape or no place")
    place = Place(dtype, tuple(shape), begin + offsets[0])
    if place.stop != begin + offsets[1] or place.stop > size:
        raise ValueError(f"its tensor {name!r} does not fit its place in the file")
    return place


def mapped(path: Path, place: Place, row: int | None = None) -> Tensor:
    """Map a tensor of a file, or one entry along its first axis, into memory: no byte is read yet.

    Writing to it changes a copy, never the file.
    """
    shape = place.shape if row is None else place.shape[1:]
    start = place.start + (0 if row is None else row * place.row)
    if not math.prod(shape):
        return torch.empty(shape, dtype=DTYPES[place.dtype])
    array = np.memmap(path, dtype=CARRIER[place.dtype], mode="c", offset=start, shape=shape)
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if place.dtype == "BF16" else tensor


def row_digest(path: Path, place: Place, row: int) -> str:
    """SHA-256 of one entry along a tensor's first axis."""
    digest, left = hashlib.sha256(), place.row
    with path.open("rb") as file:
        file.seek(place.start + row * place.row)
        while left:
            block = file.read(min(left, 1 << 20))
            if not block:
                raise BadInput(f"{path} ends in the middle of a tensor; capture it again.")
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()
