"""Reading labelled bags: tables, .npz files and folders of arrays; no pickle is loaded."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.bags.data import NEGATIVE, POSITIVE, Bags, make_bags
from attnlimit.checks import Array
from attnlimit.errors import AttnlimitError, BadInput, MissingExtra

TABLES = (".csv", ".parquet", ".pq")
ARRAYS = (".npy", ".npz", ".pt", ".pth", ".h5", ".hdf5")
FEATURE_NAMES = ("features", "feats", "instances", "x")
"""Names of the array of instances in a file that holds several."""
BAG_NAMES = (
    "bag", "bag_id", "bagid", "bag_name", "bags", "groups", "slide", "slide_id", "case", "case_id",
    "patient",
)  # fmt: skip
LABEL_NAMES = ("label", "bag_label", "labels", "class", "target", "y")


def read_bags(
    path: str | Path, bag: str = "bag", label: str = "label", *, positive: object = None
) -> Bags:
    """Read labelled bags from disk.

    - A CSV or parquet file has a row for each instance: a column with the bag, a column with the
      bag's label, and features in all others. Columns named bag or slide_id, label or class and the
      like are recognised; others are given as `bag` and `label`, by their numbers in a CSV without
      header.
    - An .npz file has arrays X and y: X is (bags, instances, dim), or (instances, dim) with an
      array `bag` that has the bag of each instance; y has a label for each bag or instance.
    - A folder has an array (instances, dim) for each bag, as .npy, .npz, .pt or .h5: in subfolders
      named after the two labels, or flat with a `labels.csv` of bags (file names without their
      ending) and labels.

    `positive` is the label of the class with the signal; see `make_bags`.
    """
    try:
        source = Path(path)
    except TypeError:
        raise BadInput(f"path must be a file or folder, got {type(path).__name__}.") from None
    if source.is_dir():
        return _read_folder(source, bag, label, positive)
    if not source.exists():
        raise BadInput(
            f"there is no file or folder {source}; give a table with a row for each instance, or a "
            "folder with an array for each bag."
        )
    suffix = source.suffix.lower()
    if suffix == ".npz":
        return _read_npz(source, positive)
    if suffix not in TABLES:
        raise BadInput(
            f"{source.name} must be a .csv, .parquet or .npz file, or a folder of arrays "
            f"({', '.join(ARRAYS)})."
        )
    return _from_table(_read_table(source), bag, label, source.name, positive)


@contextmanager
def _reading(name: object, what: str = "read") -> Iterator[None]:
    """Turn whatever a damaged file raises, anywhere in its reader, into one sentence."""
    try:
        yield
    except AttnlimitError:
        raise
    except Exception as error:
        raise BadInput(f"{name} could not be {what}: {reason(error)}; give another file.") from None


def reason(error: Exception) -> str:
    """First line of an error message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _read_npz(source: Path, positive: object) -> Bags:
    with _reading(source.name), np.load(source, allow_pickle=False) as file:
        arrays = {name.lower(): file[name] for name in file.files}
    features, labels, owners = (
        [arrays[name] for name in names if name in arrays]
        for names in (FEATURE_NAMES, LABEL_NAMES, BAG_NAMES)
    )
    if len(features) != 1 or len(labels) != 1 or labels[0].ndim != 1:
        held = ", ".join(sorted(arrays)[:6]) or "nothing"
        raise BadInput(f"{source.name} must hold arrays X and y (labels), but it holds {held}.")
    X, y = features[0], labels[0]
    if X.ndim == 3:
        return make_bags(list(X), y.tolist(), positive=positive)
    if X.ndim != 2 or len(owners) != 1 or owners[0].shape != (len(X),):
        raise BadInput(
            f"X of {source.name} must be (bags, instances, dim), or (instances, dim) with an array "
            f"bag of {len(X) if X.ndim else 0} bag names; its shape is {X.shape}."
        )
    names, which = np.unique(owners[0], return_inverse=True)
    if len(y) not in (len(names), len(X)):
        raise BadInput(f"y of {source.name} must have {len(names)} labels, one for each bag.")
    marks = y if len(y) == len(X) else y[which]
    table = pd.DataFrame(X).assign(bag=owners[0], label=marks)
    return _from_table(table, "bag", "label", source.name, positive)


def _read_table(source: Path) -> pd.DataFrame:
    name = source.name
    if source.suffix.lower() != ".csv":
        with _reading(name):
            return pd.read_parquet(source)
    with _reading(name), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        with source.open(newline="", encoding="utf-8", errors="replace") as lines:
            first = pd.Series(next(csv.reader(lines), []), dtype=str)
        plain = pd.to_numeric(first, errors="coerce").notna() | first.str.lower().eq("nan")
        try:
            return pd.read_csv(source, header=None if plain.all() else 0, index_col=False)
        except pd.errors.EmptyDataError:
            raise BadInput(f"{name} has no rows; give one for each instance.") from None
        except pd.errors.ParserWarning:
            raise BadInput(
                f"{name} could not be read: its first row has more cells than the header names; "
                "give every row as many."
            ) from None


def _from_table(table: pd.DataFrame, bag: str, label: str, name: str, positive: object) -> Bags:
    if table.empty:
        raise BadInput(f"{name} has no rows; give one for each instance.")
    bag_column, label_column = find_columns(table, bag, label, name)
    for column in (bag_column, label_column):
        if not table[column].map(pd.api.types.is_hashable).all():
            raise BadInput(f"column {column!r} of {name} holds lists; give one value in each row.")
        if table[column].isna().any():
            raise BadInput(f"column {column!r} of {name} has rows without a value; fill them.")
    features = table.drop(columns=[bag_column, label_column])
    for column, given in features.items():
        if not pd.api.types.is_numeric_dtype(given):
            wrong = given[pd.to_numeric(given, errors="coerce").isna() & given.notna()]
            example = f", such as {str(wrong.iloc[0])[:40]!r}" if len(wrong) else ""
            raise BadInput(
                f"column {str(column)!r} of {name} has {len(wrong)} of {len(given)} rows that are "
                f"not numbers{example}; mend them, or drop or encode the column."
            )
    if features.shape[1] == 0:
        raise BadInput(
            f"{name} has no feature columns besides {bag_column!r} and {label_column!r}."
        )
    values = features.to_numpy(dtype=float)
    groups = table.groupby(bag_column, sort=True)
    labels = groups[label_column].nunique()
    if (labels > 1).any():
        raise BadInput(
            f"bag {labels.index[labels > 1][0]} of {name} has more than one label; give all its "
            "rows the same."
        )
    rows = [np.asarray(index) for index in groups.indices.values()]
    marks = [table[label_column].iloc[index[0]] for index in rows]
    return make_bags([values[index] for index in rows], marks, groups.indices, positive=positive)


def find_columns(table: pd.DataFrame, bag: str, label: str, name: str) -> tuple[Any, Any]:
    """Return the columns of the bag and of the label.

    A column given by another name than "bag" or "label" must exist. Columns of a table without
    header are given by their numbers, "0" for the first.
    """
    if not pd.api.types.is_integer_dtype(table.columns):
        return (
            _column_by_name(table, bag, BAG_NAMES, "bag", name),
            _column_by_name(table, label, LABEL_NAMES, "label", name),
        )
    width = table.shape[1]
    columns = [int(text) if text.isdecimal() else width for text in (bag, label)]
    if max(columns) >= width or columns[0] == columns[1]:
        raise BadInput(
            f"{name} has no header, so --bag and --label must be two columns from 0 to "
            f"{width - 1}, like --label 0 --bag 1; got {bag!r} and {label!r}."
        )
    return columns[0], columns[1]


def _column_by_name(
    table: pd.DataFrame, given: str, known: tuple[str, ...], default: str, name: str
) -> Any:
    if given in table:
        return given
    alike = [column for column in table if str(column).strip().lower() in known]
    if given == default and len(alike) == 1:
        return alike[0]
    some = ", ".join(repr(str(column)) for column in table.columns[:8])
    raise BadInput(
        f"{name} has no column {given!r}; its columns are {some}: name it with --bag or --label."
    )


def _read_folder(source: Path, bag: str, label: str, positive: object) -> Bags:
    listing = source / "labels.csv"
    if listing.exists():
        files = _listed(source, listing, bag, label)
    else:
        folders = [folder for folder in sorted(source.iterdir()) if folder.is_dir()]
        known = [folder for folder in folders if folder.name.lower() in NEGATIVE | POSITIVE]
        files = [
            (file, folder.name)
            for folder in (known if len(known) == 2 else folders)
            for file in sorted(folder.iterdir())
            if file.suffix.lower() in ARRAYS
        ]
        if not files:
            raise BadInput(
                f"{source} has neither labels.csv nor arrays ({', '.join(ARRAYS)}) in "
                "subfolders positive and negative."
            )
    root = source.resolve()
    for file, _ in files:
        if "\0" in file.name or root not in file.resolve().parents:
            raise BadInput(
                f"{file} could not be read as an array: it leads out of {source}; put it inside."
            )
    arrays, marks = [read_array(file) for file, _ in files], [mark for _, mark in files]
    return make_bags(arrays, marks, [file.stem for file, _ in files], positive=positive)


def _listed(source: Path, listing: Path, bag: str, label: str) -> list[tuple[Path, Any]]:
    """Files and labels of a labels.csv."""
    with _reading(listing):
        table = pd.read_csv(listing, dtype=str)
    bag_column, label_column = find_columns(table, bag, label, str(listing))
    if table[label_column].isna().any():
        raise BadInput(f"{listing} has bags without a label; give every bag one.")
    marks = pd.to_numeric(table[label_column], errors="coerce")
    values = table[label_column] if marks.isna().any() else marks
    present = {file.name for file in source.iterdir()}
    files = []
    for name, mark in zip(table[bag_column].map(str), values.tolist(), strict=True):
        match = [f"{name}{suffix}" for suffix in ARRAYS if f"{name}{suffix}" in present]
        whole = name if Path(name).suffix.lower() in ARRAYS else f"{name}.npy"
        files.append((source / (match[0] if match else whole), mark))
    return files


def read_array(file: Path) -> Array:
    """Return the array in a file; of several, the one named features."""
    suffix = file.suffix.lower()
    with _reading(file, "read as an array"):
        if suffix in (".npy", ".npz"):
            loaded = np.load(file, allow_pickle=False)
            if suffix == ".npz":
                with loaded:
                    loaded = loaded[_features(loaded.files)]
        elif suffix in (".pt", ".pth"):
            import torch

            loaded = torch.load(file, map_location="cpu", weights_only=True)
            if isinstance(loaded, dict):
                loaded = loaded[_features([str(key) for key in loaded])]
            loaded = loaded.detach().double().numpy()
        else:
            loaded = _hdf5(file)
        return np.asarray(loaded, dtype=np.float64)


def _hdf5(file: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtra(
            ".h5 files need h5py; install it with: pip install 'attnlimit[bags]'"
        ) from None
    with h5py.File(file, "r") as archive:
        names = [key for key in archive if isinstance(archive[key], h5py.Dataset)]
        return archive[_features(names)][()]


def _features(names: list[str]) -> str:
    """Name of the array of instances among those of a file."""
    known = [name for name in names if name.lower() in FEATURE_NAMES]
    if len(names) != 1 and len(known) != 1:
        some = ", ".join(map(repr, names[:6])) or "nothing"
        raise ValueError(f"it holds {some}; name the array of instances 'features'")
    return known[0] if known else names[0]
