"""How far is a run? What a progress view needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """A run at one moment; `message` is news to be read once, empty most of the time."""

    done: int
    total: int
    running: int = 0
    failures: int = 0
    set_aside: int = 0
    where: str = ""
    message: str = ""


Progress = Callable[[Status], None]
