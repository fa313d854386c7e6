"""How do labelled bags come from disk? One table, or a folder with one file for each bag."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.sparse.bags.arrays import SUFFIXES, read_array, reason
from attnlimit.sparse.bags.bags import NEGATIVE, POSITIVE, Bags, make_bags
from attnlimit.sparse.bags.columns import find_columns

TABLES = (".csv", ".parquet", ".pq")


def read_bags(path: str | Path, bag: str = "bag", label: str = "label") -> Bags:
    """Read labelled bags from disk.

    A CSV or parquet file has one row for each instance: one column says which bag it is in, one
    the bag's label, all others are features. They are found if they are called bag or slide_id,
    label or class, and the like, or named here; a CSV without header is read too. A folder has one
    array (instances, dim) for each bag, as .npy, .npz, .pt or .h5, in subfolders `positive` and
    `negative`, or flat with a `labels.csv` that names the bag (the file without its ending) and
    the label.
    """
    source = Path(path)
    if source.is_dir():
        return _read_folder(source, bag, label)
    if not source.exists():
        raise BadInput(
            f"there is no file or folder {source}; give a table with a row for each instance, or a "
            "folder with an array for each bag."
        )
    if source.suffix.lower() not in TABLES:
        raise BadInput(
            f"{source.name} must be a .csv or .parquet file, or a folder of arrays "
            f"({', '.join(SUFFIXES)})."
        )
    return _from_table(_read_table(source), bag, label, source.name)


def _read_table(source: Path) -> pd.DataFrame:
    name = source.name
    if source.suffix.lower() != ".csv":
        try:
            return pd.read_parquet(source)
        except Exception:  # a damaged table can trip the reader anywhere
            raise BadInput(
                f"{name} could not be read: it is damaged, or no parquet file."
            ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            header = 0 if _has_header(source) else None
            return pd.read_csv(source, header=header, index_col=False)
    except pd.errors.EmptyDataError:
        raise BadInput(f"{name} has no rows; give one for each instance.") from None
    except pd.errors.ParserWarning:
        raise BadInput(
            f"{name} could not be read: its first row has more cells than the header names; give "
            "every row as many."
        ) from None
    except Exception as error:
        raise BadInput(f"{name} could not be read: {reason(error)}.") from None


def _has_header(source: Path) -> bool:
    """Whether something in the first row is not a number."""
    with source.open(newline="", encoding="utf-8", errors="replace") as lines:
        first = next(csv.reader(lines), [])
    return not first or not all(_is_number(cell) for cell in first)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _from_table(table: pd.DataFrame, bag: str, label: str, name: str) -> Bags:
    if table.empty:
        raise BadInput(f"{name} has no rows; give one for each instance.")
    which, marked = find_columns(table, bag, label, name)
    for column in (which, marked):
        if not table[column].map(pd.api.types.is_hashable).all():
            raise BadInput(f"column {column!r} of {name} holds lists; give one value in each row.")
        if table[column].isna().any():
            raise BadInput(f"column {column!r} of {name} has rows without a value; fill them.")
    features = table.drop(columns=[which, marked])
    for column in features:
        if not pd.api.types.is_numeric_dtype(features[column]):
            given = features[column]
            wrong = given[pd.to_numeric(given, errors="coerce").isna() & given.notna()]
            shown = f", such as {str(wrong.iloc[0])[:40]!r}" if len(wrong) else ""
            raise BadInput(
                f"column {str(column)!r} of {name} has {len(wrong)} of {len(given)} rows that are "
                f"not numbers{shown}; mend them, or drop or encode the column."
            )
    if features.shape[1] == 0:
        raise BadInput(f"{name} has no feature columns besides {which!r} and {marked!r}.")
    values = features.to_numpy(dtype=float)
    groups = table.groupby(which, sort=True)
    mixed = groups[marked].nunique()
    if (mixed > 1).any():
        raise BadInput(
            f"bag {mixed.index[mixed > 1][0]} of {name} has more than one label; give all its rows "
            "the same."
        )
    indices = list(groups.indices.values())
    marks = [table[marked].iloc[rows[0]] for rows in indices]
    return make_bags([values[np.asarray(rows)] for rows in indices], marks, groups.indices)


def _read_folder(source: Path, bag: str, label: str) -> Bags:
    listing = source / "labels.csv"
    if listing.exists():
        files = _listed(source, listing, bag, label)
    else:
        files = [
            (file, folder.name)
            for folder in sorted(source.iterdir())
            if folder.is_dir() and folder.name.lower() in NEGATIVE | POSITIVE
            for file in sorted(folder.iterdir())
            if file.suffix.lower() in SUFFIXES
        ]
        if not files:
            raise BadInput(
                f"{source} has neither labels.csv nor arrays ({', '.join(SUFFIXES)}) in "
                "subfolders positive and negative."
            )
    root = source.resolve()
    for file, _ in files:
        if "\0" in file.name or root not in file.resolve().parents:
            raise BadInput(f"{file} could not be read as an array: it leads out of {source}.")
    arrays, marks = [read_array(file) for file, _ in files], [mark for _, mark in files]
    return make_bags(arrays, marks, [file.stem for file, _ in files])


def _listed(source: Path, listing: Path, bag: str, label: str) -> list[tuple[Path, str]]:
    """Files that a list of labels names, with their labels."""
    try:
        table = pd.read_csv(listing, dtype=str)
    except (ValueError, OSError) as error:
        raise BadInput(f"{listing} could not be read: {reason(error)}.") from None
    which, marked = find_columns(table, bag, label, str(listing))
    held = {file.name for file in source.iterdir()}
    files = []
    for name, mark in zip(table[which].map(str), table[marked].map(str), strict=True):
        found = [f"{name}{suffix}" for suffix in SUFFIXES if f"{name}{suffix}" in held]
        whole = name if Path(name).suffix.lower() in SUFFIXES else f"{name}.npy"
        files.append((source / (found[0] if found else whole), mark))
    return files
