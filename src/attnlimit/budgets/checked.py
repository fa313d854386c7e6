"""Does a budget file hold what a plan needs? It may come from anywhere, damaged or made up."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from attnlimit.budgets.schemes import SCHEMES
from attnlimit.errors import BadInput

LARGEST = 10**15
"""Beyond any number of tokens; sums over all heads of a model stay exact."""


class Maybe(NamedTuple):
    """What is asked for, or null."""

    inner: Any


class Each(NamedTuple):
    """An object of any entries whose names are of a pattern, all alike."""

    pattern: str
    such_as: str
    inner: Any


class Exactly(dict[str, Any]):
    """An object of these entries and no others."""


KINDS = {str: "text", bool: "true or false", dict: "an object"}
TOKENS = range(1, LARGEST + 1)
PLACE = range(10**6 + 1)
SCHEME = Exactly(
    certified=Maybe(TOKENS), typical=Maybe(TOKENS), typical_reliable=bool, median_error=float
)
HEAD = {
    "head": PLACE,
    "scheme": SCHEMES,
    "kind": str,
    "thinnable": bool,
    "keep": str,
    "sink": range(LARGEST + 1),
    "sink_weight": float,
    "score_std": float,
    "frozen": float,
    "effective_tokens": float,
    "sees_all": bool,
    "by_text": [TOKENS],
    "held_out": Maybe(float),
    "schemes": Exactly(dict.fromkeys(SCHEMES, SCHEME)),
    "extrapolated": Each(
        r"[1-9][0-9]{0,14}x", "factors such as 10x", Each("(?s).*", "", Maybe(TOKENS))
    ),
}
FILE = {
    "epsilon": float,
    "delta": float,
    "quantile": float,
    "context": TOKENS,
    "key_value_heads": range(1, 10**6 + 1),
    "key_value_width": range(1, 10**9 + 1),
    "source": dict,
    "layers": [{"layer": PLACE, "heads": [HEAD]}],
}


def check_content(value: Any, schema: Any = FILE, place: str = "") -> None:
    """Raise a BadInput that names the first entry that a budget file cannot have."""
    if isinstance(schema, Maybe):
        if value is not None:
            check_content(value, schema.inner, place)
    elif isinstance(schema, range):  # a bool is no number
        words = f"a whole number from {schema[0]} to {schema[-1]}"
        _must(type(value) is int and value in schema, place, words, value)
    elif schema is float:
        _must(type(value) in (int, float) and abs(value) < 1e300, place, "a number", value)
    elif isinstance(schema, type):
        _must(type(value) is schema, place, KINDS[schema], value)
    elif isinstance(schema, list):
        _must(isinstance(value, list) and bool(value), place, "a list that is not empty", value)
        for index, item in enumerate(value):
            check_content(item, schema[0], f"{place}[{index}]")
    elif isinstance(schema, Each):
        _must(isinstance(value, dict), place, "an object", value)
        for name, item in value.items():
            named = re.fullmatch(schema.pattern, name) is not None
            _must(named, place, f"an object of {schema.such_as}", name)
            check_content(item, schema.inner, f"{place}.{name}")
    elif isinstance(schema, tuple):
        _must(value in schema, place, f"one of {', '.join(schema)}", value)
    else:
        _must(isinstance(value, dict), place, "an object", value)
        for name, inner in schema.items():
            where = f"{place}.{name}" if place else name
            if name not in value:
                raise BadInput(f"{where} is missing")
            check_content(value[name], inner, where)
        exact = not isinstance(schema, Exactly) or len(value) == len(schema)
        _must(exact, place, f"an object of {', '.join(schema)}", sorted(value))


def _must(fine: bool, place: str, expected: str, found: Any) -> None:
    if not fine:
        shown = repr(found)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise BadInput(f"{place or 'the file'} must be {expected}, got {shown}")
