"""Write one reference page for each public package from `__all__`, before the site is built."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_overloads

from sphinx.application import Sphinx

PACKAGES = {
    "tokens": "Token distributions",
    "head": "Heads",
    "samplers": "Samplers",
    "theory": "Theory",
    "simulate": "Simulation",
    "planning": "Budgets and plans",
    "curve": "Curves",
    "models": "Models",
    "sparse": "Sparse-token classification",
    "bags": "Bags of instances",
    "errors": "Errors",
}
"""Titles of the packages that have public names, in the order of the reference."""

FACADES = ("models", "sparse", "bags")


def public_names() -> dict[str, list[str]]:
    """Return full public names by package, as a user types them."""
    names: dict[str, list[str]] = {package: [] for package in PACKAGES}
    attnlimit = import_module("attnlimit")
    for name in attnlimit.__all__:
        if name not in (*FACADES, "__version__"):
            module = getattr(attnlimit, name).__module__
            names[module.split(".")[1]].append(f"attnlimit.{name}")
    for facade in FACADES:
        module = import_module(f"attnlimit.{facade}")
        names[facade] = [f"attnlimit.{facade}.{name}" for name in module.__all__]
    return names


def write_pages(app: Sphinx, config: Any) -> None:
    """Write a page for each package, with a table of its names and a page for each name."""
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    public = public_names()
    for page in (folder / "names").glob("*.rst"):  # of names that are no longer public
        if not any(page.stem in names for names in public.values()):
            page.unlink()
    for package, names in public.items():
        listed = "\n".join(f"   {name}" for name in sorted(names, key=str.lower))
        text = (
            f"# {PACKAGES[package]}\n\n```{{eval-rst}}\n.. autosummary::\n   :toctree: names\n"
            f"   :nosignatures:\n\n{listed}\n```\n"
        )
        page = folder / f"{package}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def plain_bars(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Let |x| in a docstring be a norm, and links into scikit-learn's own pages plain words."""
    plain = (re.sub(r":ref:`(?:[^<`]*<)?([^>`]*)>?`", r"``\1``", line) for line in lines)
    lines[:] = [line.replace("|", "\\|") for line in plain]


def first_overload(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, args: str, result: str
) -> tuple[str, str] | None:
    """Show a function of several signatures by the first, which its docstring explains."""
    written = get_overloads(thing) if what == "function" else []
    if not written:
        return None
    taken = signature(written[0])
    bare = [
        parameter.replace(annotation=Parameter.empty) for parameter in taken.parameters.values()
    ]
    return str(taken.replace(parameters=bare, return_annotation=Signature.empty)), ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for any, and read docstrings as they are meant."""
    app.connect("config-inited", write_pages)
    app.connect("autodoc-process-docstring", plain_bars, priority=100)
    app.connect("autodoc-process-signature", first_overload)
    return {"parallel_read_safe": True}
