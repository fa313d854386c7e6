"""Does a budget file hold what a plan needs? It may come from anywhere, damaged or made up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from attnlimit.budgets.schemes import SCHEMES
from attnlimit.errors import BadInput

LARGEST = 10**15
"""Beyond any number of tokens; sums over all heads of a model stay exact."""

Check = Callable[[Any, str], None]


def check_content(content: Any) -> None:
    """Raise a BadInput that names the first entry that a budget file cannot have."""
    FILE(content, "")


def _refuse(place: str, expected: str, found: Any) -> BadInput:
    shown = repr(found)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return BadInput(f"{place or 'the file'} must be {expected}, got {shown}")


def _whole(smallest: int, largest: int = LARGEST) -> Check:
    def check(value: Any, place: str) -> None:
        if type(value) is not int or not smallest <= value <= largest:  # a bool is no number
            raise _refuse(place, f"a whole number from {smallest} to {largest}", value)

    return check


def _real(value: Any, place: str) -> None:
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise _refuse(place, "a number", value)


def _of(kind: type, words: str) -> Check:
    def check(value: Any, place: str) -> None:
        if type(value) is not kind:
            raise _refuse(place, words, value)

    return check


def _name(*names: str) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or value not in names:
            raise _refuse(place, f"one of {', '.join(names)}", value)

    return check


def _or_none(inner: Check) -> Check:
    def check(value: Any, place: str) -> None:
        if value is not None:
            inner(value, place)

    return check


def _list(inner: Check) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or not value:
            raise _refuse(place, "a list that is not empty", value)
        for index, item in enumerate(value):
            inner(item, f"{place}[{index}]")

    return check


def _object(entries: dict[str, Check], exact: bool = False) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _refuse(place, "an object", value)
        for name, inner in entries.items():
            where = f"{place}.{name}" if place else name
            if name not in value:
                raise BadInput(f"{where} is missing")
            inner(value[name], where)
        if exact and len(value) > len(entries):
            raise _refuse(place, f"an object of {', '.join(entries)}", sorted(value))

    return check


def _longer(value: Any, place: str) -> None:
    """Factors such as 10x, each with the tokens of some schemes there."""
    if not isinstance(value, dict):
        raise _refuse(place, "an object", value)
    for factor, found in value.items():
        if not re.fullmatch(r"[1-9][0-9]{0,14}x", factor):
            raise _refuse(place, "an object of factors such as 10x", factor)
        if not isinstance(found, dict):
            raise _refuse(f"{place}.{factor}", "an object", found)
        for name, tokens in found.items():
            _or_none(TOKENS)(tokens, f"{place}.{factor}.{name}")


TEXT = _of(str, "text")
TRUTH = _of(bool, "true or false")
TOKENS = _whole(1)
PLACE = _whole(0, 10**6)
SCHEME = _object(
    {
        "certified": _or_none(TOKENS),
        "typical": _or_none(TOKENS),
        "typical_reliable": TRUTH,
        "median_error": _real,
    },
    exact=True,
)
HEAD = _object(
    {
        "head": PLACE,
        "scheme": _name(*SCHEMES),
        "kind": TEXT,
        "thinnable": TRUTH,
        "keep": TEXT,
        "sink": _whole(0),
        "sink_weight": _real,
        "score_std": _real,
        "frozen": _real,
        "effective_tokens": _real,
        "sees_all": TRUTH,
        "by_text": _list(TOKENS),
        "held_out": _or_none(_real),
        "schemes": _object(dict.fromkeys(SCHEMES, SCHEME), exact=True),
        "extrapolated": _longer,
    }
)
FILE = _object(
    {
        "epsilon": _real,
        "delta": _real,
        "quantile": _real,
        "context": TOKENS,
        "key_value_heads": _whole(1, 10**6),
        "key_value_width": _whole(1, 10**9),
        "source": _of(dict, "an object"),
        "layers": _list(_object({"layer": PLACE, "heads": _list(HEAD)})),
    }
)
