"""Objects by name, those of installed packages included, and by the path of a module or file."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

Kind = TypeVar("Kind")


class Registry(dict[str, Kind]):
    """Objects by name: those that were registered, and entry points of `group`.

    An entry point's name is that of the object and its value the object's path; it is loaded when
    its name is first used.
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def __missing__(self, name: str) -> Kind:
        for point in entry_points(group=self.group, name=name):
            self.setdefault(name, point.load())
            return super().__getitem__(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or any(point == name for point in self.installed())

    def installed(self) -> list[str]:
        """Names of the entry points."""
        return [point.name for point in entry_points(group=self.group)]

    def names(self) -> tuple[str, ...]:
        """Names of all, the registered ones first."""
        return tuple(dict.fromkeys([*self, *self.installed()]))


def find(path: str) -> Any:
    """Import the object at "package.module:NAME", or in a file, at "/a/file.py:NAME"."""
    module, _, name = path.rpartition(":")
    holder = _import_file(module) if module.endswith(".py") else import_module(module)
    return getattr(holder, name)


def _import_file(path: str) -> ModuleType:
    """Import a file as a module whose name is its path; again if its text has changed."""
    text = Path(path).read_text(encoding="utf-8")
    module = sys.modules.get(path)
    if module is None or module.__dict__["__text__"] != text:
        module = ModuleType(path)
        module.__dict__.update(__file__=path, __text__=text)
        sys.modules[path] = module  # before it runs: dataclasses look for it
        if (folder := str(Path(path).parent)) not in sys.path:
            sys.path.append(folder)  # modules beside it
        try:
            exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            sys.modules.pop(path)
            raise
    return module
