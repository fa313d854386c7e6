"""Public names that load when they are first used, read from a package's type stub."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from typing import Any


def attach_stub(
    package: str, filename: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package from its ``__init__.pyi``.

    The stub lists every public name once, as ``from .module import name as name``. Type checkers
    read it, and so does this function. No submodule may have the name of something that is public:
    importing the submodule would replace it.
    """
    sources: dict[str, str] = {}
    for node in ast.parse(Path(filename).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            sources |= {alias.name: module for alias in node.names}

    def load(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = sources[name]
        if module == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(module), name)

    names = sorted(sources)
    return load, lambda: names, names
