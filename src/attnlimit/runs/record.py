"""What does a run's record say? Read from a run.json, which may be damaged or someone else's."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attnlimit
from attnlimit.errors import BadInput
from attnlimit.files import Damaged, read_json

SCHEMA = "attnlimit.run/2"
NEEDED = ("experiment", "key", "config")
TYPES: dict[str, type | tuple[type, ...]] = {
    "experiment": str,
    "key": str,
    "config": dict,
    "weights": (str, type(None)),
    "version": str,
    "created": str,
    "versions": dict,
    "tables": list,
}


LIBRARIES = ("numpy", "scipy", "pandas", "pyarrow", "torch")


def versions() -> dict[str, str]:
    """Return what results depend on: the versions of the package and of what it stands on."""
    found = {"python": platform.python_version(), "attnlimit": attnlimit.__version__}
    return found | {library: version(library) for library in LIBRARIES}


class OtherSchema(BadInput):
    """A run folder of another version of the package, which cannot be read."""


def read_record(path: Path) -> dict[str, Any]:
    """Read a run.json and check what it has to say."""
    content = read_json(path)
    if not isinstance(content, dict) or not set(NEEDED) <= set(content):
        raise Damaged(f"{path} is damaged: it has no {', '.join(NEEDED)}.")
    for name, kind in TYPES.items():
        if name in content and not isinstance(content[name], kind):
            found = type(content[name]).__name__
            raise Damaged(f"{path} is damaged: its {name} is of type {found}.")
    if content.get("schema") != SCHEMA:
        raise OtherSchema(
            f"{path.parent} was made by attnlimit {content.get('version', 'of unknown version')}, "
            "which stored runs in another way; run its command again."
        )
    if not all(isinstance(name, str) for name in content.get("tables", [None])):
        raise Damaged(f"{path} is damaged: its tables have no names.")
    return content
