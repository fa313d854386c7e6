"""What does a run's record say? Read from a run.json, which may be damaged or someone else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlimit.errors import BadInput
from attnlimit.files import Damaged, read_json

SCHEMA = "attnlimit.run/2"
# What run.json of any version must say, and what it may say.
RECORD: dict[str, type | tuple[type, ...]] = {"experiment": str, "key": str, "config": dict}
OPTIONAL: dict[str, type | tuple[type, ...]] = {
    "weights": (str, type(None)),
    "version": str,
    "created": str,
    "versions": dict,
    "tables": list,
}


class OtherSchema(BadInput):
    """A run folder of another version of the package, which cannot be read."""


def read_record(path: Path) -> dict[str, Any]:
    """Read a run.json and check what it has to say."""
    content = read_json(path)
    if not isinstance(content, dict) or not set(RECORD) <= set(content):
        raise Damaged(f"{path} is damaged: it has no {', '.join(RECORD)}.")
    for name, kind in (RECORD | OPTIONAL).items():
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
