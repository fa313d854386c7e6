"""Files of a model folder that may be read: safetensors, and never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput
from attnlimit.files import read_bytes

PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
INDEX = "model.safetensors.index.json"
MOST_INDEX_BYTES = 1 << 26


def check_folder(folder: Path) -> None:
    """Raise if reading the model in `folder` would read anything that is not in it, or a pickle.

    transformers follows links, joins the names in an index to the folder as they are (`..`
    included), reads a pickle that an index or `transformers_weights` names, and replaces the
    weights by those of another model when an adapter asks for it and peft is installed.
    """
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no model: it has no config.json.")
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            _check_link(folder, entry)
    if (folder / "adapter_config.json").exists():
        raise BadInput(
            f"{folder} holds an adapter (adapter_config.json), which names another model's "
            "weights; merge the two and save the result with save_pretrained."
        )
    check_config(read_json(folder / "config.json"), str(folder))
    if (folder / INDEX).is_file():
        for name in check_index(folder / INDEX):
            file_inside(folder, name)


def check_config(config: dict[str, Any], name: str) -> None:
    """Raise if a model's configuration names weights that are not safetensors beside it."""
    named = config.get("transformers_weights")
    if named is not None and not (_is_plain(named) and named.endswith((".safetensors", INDEX))):
        raise BadInput(
            f"config.json of {name} names the weights {named!r}; "
            "only .safetensors files beside it are read."
        )


def check_index(index: Path) -> list[str]:
    """Return the files that an index of sharded weights names, which must be plain names."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadInput(f"{index} is damaged: it has no weight_map.")
    for name in weight_map.values():
        if not _is_plain(name) or not name.endswith(".safetensors"):
            raise BadInput(
                f"{index} names the weights {name!r}; only .safetensors files beside it are read."
            )
    return sorted(set(weight_map.values()))


def file_inside(folder: Path, name: str) -> Path:
    """Return the file called `name` in `folder`; a name or a link that leads out is refused."""
    if not _is_plain(name):
        raise BadInput(f"{name!r} is not the name of a file in {folder}; give the name alone.")
    path = folder / name
    if not path.is_file():
        raise BadInput(f"{folder} has no file {name!r}.")
    _check_link(folder, path)
    return path


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that came with a model."""
    try:
        content = json.loads(read_bytes(path, MOST_INDEX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged: {error}; download the model again.") from None
    return content


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0:")


def _check_link(folder: Path, path: Path) -> None:
    root, target = folder.resolve(), path.resolve()
    places = [root]
    # The hub's own cache: snapshots hold links to the blobs beside them.
    if root.parent.name == "snapshots" and root.parents[1].name.startswith("models--"):
        places.append(root.parents[1] / "blobs")
    if not any(place in target.parents for place in places):
        raise BadInput(
            f"{path.name} in {folder} is a link that leads out of it, to {target}; "
            "put the file itself there."
        )
