"""What does a run's record say? Read from a run.json, which may be damaged or someone else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlimit.files import Damaged, read_json

# What run.json must say, and may say.
RECORD: dict[str, type | tuple[type, ...]] = {"experiment": str, "key": str, "config": dict}
OPTIONAL: dict[str, type | tuple[type, ...]] = {
    "weights": (str, type(None)),
    "version": str,
    "created": str,
    "versions": dict,
}


def read_record(path: Path) -> dict[str, Any]:
    """Read a run.json and check what it has to say."""
    content = read_json(path)
    if not isinstance(content, dict) or not set(RECORD) <= set(content):
        raise Damaged(f"{path} is damaged: it has no {', '.join(RECORD)}.")
    for name, kind in (RECORD | OPTIONAL).items():
        if name in content and not isinstance(content[name], kind):
            found = type(content[name]).__name__
            raise Damaged(f"{path} is damaged: its {name} is of type {found}.")
    return content
