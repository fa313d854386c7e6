"""Which names are public? One page a room, written from `__all__` before the site is built."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_overloads

from sphinx.application import Sphinx

ROOMS = {
    "tokens": "Tokens: where they come from",
    "head": "Heads",
    "samplers": "Samplers: which keys a query sees",
    "theory": "Theory: what n or infinitely many tokens give",
    "montecarlo": "Monte Carlo: what n tokens give, drawn",
    "budgets": "Budgets: the n that is enough",
    "curve": "Curves",
    "models": "Real models",
    "sparse": "Rare signals in bags",
    "errors": "Errors",
}
"""Rooms that have public names, in the order of the reference."""


def public_names() -> dict[str, list[str]]:
    """Full names by room; what a user types, not where it is defined."""
    rooms: dict[str, list[str]] = {room: [] for room in ROOMS}
    package = import_module("attnlimit")
    for name in package.__all__:
        found = getattr(package, name)
        if name not in ("models", "sparse", "__version__"):
            rooms[found.__module__.split(".")[1]].append(f"attnlimit.{name}")
    for room in ("models", "sparse"):
        module = import_module(f"attnlimit.{room}")
        rooms[room] = [f"attnlimit.{room}.{name}" for name in module.__all__]
    return rooms


def write_pages(app: Sphinx, config: Any) -> None:
    """Write a page a room, with a table of its names and a page for each of them."""
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    for room, names in public_names().items():
        listed = "\n".join(f"   {name}" for name in sorted(names, key=str.lower))
        text = (
            f"# {ROOMS[room]}\n\n```{{eval-rst}}\n.. autosummary::\n   :toctree: names\n"
            f"   :nosignatures:\n\n{listed}\n```\n"
        )
        page = folder / f"{room}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def plain_bars(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Let |x| in a docstring be a norm, and links into scikit-learn's own pages plain words."""
    plain = (re.sub(r":ref:`(?:[^<`]*<)?([^>`]*)>?`", r"``\1``", line) for line in lines)
    lines[:] = [line.replace("|", "\\|") for line in plain]


def first_overload(
    app: Sphinx, what: str, name: str, found: Any, options: Any, args: str, result: str
) -> tuple[str, str] | None:
    """Show a function of several signatures by the first, which its docstring explains."""
    written = get_overloads(found) if what == "function" else []
    if not written:
        return None
    taken = signature(written[0])
    bare = [one.replace(annotation=Parameter.empty) for one in taken.parameters.values()]
    return str(taken.replace(parameters=bare, return_annotation=Signature.empty)), ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for any, and read docstrings as they are meant."""
    app.connect("config-inited", write_pages)
    app.connect("autodoc-process-docstring", plain_bars, priority=100)
    app.connect("autodoc-process-signature", first_overload)
    return {"parallel_read_safe": True}
