"""Which columns of a table name the bag and its label? Found where clear, else asked for."""

from __future__ import annotations

from typing import Any

import pandas as pd

from attnlimit.errors import BadInput

BAG_NAMES = (
    "bag",
    "bag_id",
    "bagid",
    "bag_name",
    "slide",
    "slide_id",
    "case",
    "case_id",
    "patient",
)
LABEL_NAMES = ("label", "bag_label", "labels", "class", "target", "y")


def find_columns(table: pd.DataFrame, bag: str, label: str, name: str) -> tuple[Any, Any]:
    """Return the columns of the bag and of the label.

    A column that was asked for by another name than "bag" or "label" must be there. A table
    without header has numbers for columns, which can be asked for, "0" being the first; unless
    they are, two of the first three are taken if only one choice makes sense: two labels, and one
    label in each bag.
    """
    if pd.api.types.is_integer_dtype(table.columns):
        return _by_place(table, bag, label, name)
    return (
        _by_name(table, bag, BAG_NAMES, "bag", name),
        _by_name(table, label, LABEL_NAMES, "label", name),
    )


def _by_name(
    table: pd.DataFrame, asked: str, known: tuple[str, ...], default: str, name: str
) -> Any:
    if asked in table:
        return asked
    alike = [column for column in table if str(column).strip().lower() in known]
    if asked == default and len(alike) == 1:
        return alike[0]
    some = ", ".join(repr(str(one)) for one in table.columns[:8])
    raise BadInput(
        f"{name} has no column {asked!r}; its columns are {some}: name it with --bag or --label."
    )


def _by_place(table: pd.DataFrame, bag: str, label: str, name: str) -> tuple[Any, Any]:
    if bag != "bag" or label != "label":
        places = [
            int(text) if text.isdigit() and int(text) < table.shape[1] else None
            for text in (bag, label)
        ]
        if None in places or places[0] == places[1]:
            raise BadInput(
                f"{name} has no header, so --bag and --label must be two places from 0 to "
                f"{table.shape[1] - 1}, got {bag!r} and {label!r}."
            )
        return places[0], places[1]
    first = list(table.columns[:3])
    found = [
        (group, mark)
        for group in first
        for mark in first
        if group != mark and table[mark].nunique() == 2
        and 2 < table[group].nunique() < len(table)
        and (table.groupby(group)[mark].nunique() == 1).all()
    ]  # fmt: skip
    if len(found) == 1:
        return found[0]
    raise BadInput(
        f"{name} has no header, and which columns hold the bag and its label is not clear; name "
        "them by place, like --label 0 --bag 1."
    )
