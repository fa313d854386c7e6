"""How do several commands take the same options? As the fields of a dataclass, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from attnlimit.errors import BadInput

KEYWORD = inspect.Parameter.KEYWORD_ONLY
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def html(path: Path | None) -> Path | None:
    """Return where a page goes, before anything is computed for it."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"A page is an HTML file; give a name that ends in .html, got {path}.")
    return path


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn each dataclass parameter of a command into one option for each of its fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in signature.parameters.items():
        group: Any = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=KEYWORD))
            continue
        groups[name] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):  # each has a default
            made, hint = field.default_factory, hints[field.name]
            default = field.default if made is MISSING else made()
            option = inspect.Parameter(field.name, KEYWORD, default=default, annotation=hint)
            parameters.append(option)

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in parameters}
    return flat
