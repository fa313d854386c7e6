"""Registries of classes and instances by name, with those of installed packages."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

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
