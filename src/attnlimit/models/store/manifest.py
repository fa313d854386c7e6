"""What is in a capture's folder? A manifest: the text's tokens, and every layer's file by hash."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput
from attnlimit.files import Damaged, read_json, write_atomically
from attnlimit.models.capture.captured import Probes

SCHEMA = "attnlimit.capture/1"
NAME = "capture.json"
FILE = re.compile(r"layer-\d{4,6}\.safetensors")
OUTPUTS = ("kl", "cosine")
HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class LayerFile:
    """One layer's file, by hashes: of all of it, of its header, and of each tensor's entries."""

    layer: int
    file: str
    bytes: int
    sha256: str
    header: str
    parts: dict[str, list[str]]  # SHA-256 of each entry along the first axis: q, k, v by head


@dataclass(frozen=True)
class Manifest:
    """All that a folder says of its capture, but for the tensors."""

    tokens: tuple[str, ...]
    positions: tuple[int, ...]
    special: tuple[int, ...]  # places of the special tokens
    depth: int
    heads: int
    dtype: str
    wanted: tuple[int, ...]  # layers that the capture is of
    source: dict[str, Any] = field(default_factory=dict)
    layers: dict[int, LayerFile] = field(default_factory=dict)  # those that are written
    probes: Probes | None = None  # whose gradients are in the layers' files

    @property
    def identity(self) -> dict[str, Any]:
        """What must agree for a capture to be gone on with."""
        return asdict(replace(self, layers={})) | {"layers": None}

    @property
    def missing(self) -> tuple[int, ...]:
        """Layers that are not written yet."""
        return tuple(layer for layer in self.wanted if layer not in self.layers)

    def with_layer(self, layer: LayerFile) -> Manifest:
        """Return the manifest with one more layer."""
        return replace(self, layers={**self.layers, layer.layer: layer})

    def write(self, folder: Path) -> None:
        """Write the manifest, whole or not at all."""
        written = [asdict(self.layers[number]) for number in sorted(self.layers)]
        content = {"schema": SCHEMA, **asdict(replace(self, layers={})), "layers": written}
        text = json.dumps(content, indent=None, allow_nan=False) + "\n"
        write_atomically(folder / NAME, text.encode())

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest; anything that `write` does not write is refused."""
        content = read_json(path)
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise BadInput(f"{path} is not a capture of schema {SCHEMA}.")
        try:
            return _checked(content)
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{path} is damaged: {error}.") from None


def _checked(content: dict[str, Any]) -> Manifest:
    names = {"tokens", "positions", "special", "depth", "heads", "dtype", "wanted", "source"}
    names |= {"layers", "schema"}
    content = {"probes": None} | content  # which the first captures did not have
    names |= {"probes"}
    if set(content) != names:
        raise ValueError(f"its fields are not those of a capture: {sorted(set(content) ^ names)}")
    size = len(_listed(content, "tokens", str))
    if len(_listed(content, "positions", int)) != size or size < 2:
        raise ValueError(f"it has {size} tokens and {len(content['positions'])} positions")
    if any(not 0 <= place < 1 << 62 for place in content["positions"]):
        raise ValueError("its positions are not places in a document")
    if any(not 0 <= place < size for place in _listed(content, "special", int)):
        raise ValueError("a special token is not among its tokens")
    depth, heads = (content[name] for name in ("depth", "heads"))
    if not all(type(number) is int and 1 <= number <= 1 << 20 for number in (depth, heads)):
        raise ValueError(f"depth is {depth!r} and heads is {heads!r}")
    wanted = _listed(content, "wanted", int)
    if not wanted or sorted(set(wanted)) != wanted or not 0 <= wanted[0] <= wanted[-1] < depth:
        raise ValueError("the layers it is of are not layers of the model, in their order")
    if not isinstance(content["dtype"], str) or not isinstance(content["source"], dict):
        raise ValueError("dtype is not a text or source not an object")
    _listed({"notes": [], **content["source"]}, "notes", str)
    layers = [_layer(entry) for entry in _listed(content, "layers", dict)]
    numbers = {one.layer for one in layers}
    if len(numbers) < len(layers) or numbers - {*wanted}:
        raise ValueError("its files are not one for each layer that it is of")
    lists = {name: tuple(content[name]) for name in ("tokens", "positions", "special", "wanted")}
    kept = {name: value for name, value in content.items() if name != "schema"}
    checked = {"layers": {one.layer: one for one in layers}, "probes": _probes(content["probes"])}
    return Manifest(**kept | lists | checked)


def _listed(content: dict[str, Any], name: str, kind: type) -> list[Any]:
    found = content[name]
    if not isinstance(found, list) or not all(type(one) is kind for one in found):
        raise ValueError(f"{name} is not a list of {kind.__name__}")
    return found


def _probes(entry: Any) -> Probes | None:
    if entry is None:
        return None
    kinds = {"output": str, "count": int, "seed": int}
    if not isinstance(entry, dict) or {name: type(one) for name, one in entry.items()} != kinds:
        raise ValueError("its probes are not an output, a count and a seed")
    if entry["output"] not in OUTPUTS or not 1 <= entry["count"] <= 1 << 16 or entry["seed"] < 0:
        raise ValueError(f"its probes are {str(entry)[:80]}")
    return Probes(**entry)


def _layer(entry: dict[str, Any]) -> LayerFile:
    one = LayerFile(**entry)
    if type(one.layer) is not int or type(one.bytes) is not int:
        raise ValueError("a layer's number or size is not a whole number")
    if not isinstance(one.file, str) or not FILE.fullmatch(one.file):
        raise ValueError(f"it names the file {str(one.file)[:80]!r}, not one like {file_of(0)}")
    parts = one.parts.values() if isinstance(one.parts, dict) else [None]
    if not all(isinstance(part, list) for part in parts):
        raise ValueError("a layer's parts are not lists of hashes")
    hashes = [one.sha256, one.header, *(value for part in parts for value in part)]
    if not all(isinstance(value, str) and HASH.fullmatch(value) for value in hashes):
        raise ValueError("a hash is not a SHA-256")
    return one


def file_of(layer: int) -> str:
    """Name of a layer's file."""
    return f"layer-{layer:04d}.safetensors"
